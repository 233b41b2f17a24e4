"""The evidence sections of the post-mortem: norms, tokens, quoted text, forward passes."""

from typing import Any

from x1_pretrain.spikes.evidence import SUSPECT_DELTA
from x1_pretrain.spikes.markdown import code, number, table

TEST_NAMES = {
    "unigram_kl_nats": "unigram KL against the corpus (nats)",
    "bigram_nll_nats": "bigram NLL under the corpus (nats)",
    "repeated_fraction": "share of windows that repeat an n-gram",
    "zlib_ratio": "zlib ratio of the ids",
    "outside_share": "share of ids outside the vocabulary",
}


def gradient_norm_log(spike: dict[str, Any]) -> str:
    rows = [
        [
            str(row["step"]),
            number(row["loss_nats"]),
            number(row["grad_norm"]),
            f"{row['lr']:g}",
            "" if row["alarm"] is None else row["alarm"].replace("_", " "),
        ]
        for row in spike["grad_norm_log"]
    ]
    header = ["step", "loss (nats)", "gradient norm", "lr", "alarm"]
    return "Norms are before clipping.\n\n" + table(header, rows, (0, 1, 2, 3))


def token_histogram(spike: dict[str, Any]) -> str:
    tests = spike["batch_tests"]
    test_rows = [
        [
            name,
            number(tests[key]["value"]),
            number(tests[key]["normal_median"]),
            number(tests[key]["z"], 1),
        ]
        for key, name in TEST_NAMES.items()
    ]
    token_rows = [
        [str(row["id"]), code(row["text"]), str(row["count"]), number(row["expected"], 1)]
        for row in spike["histogram"]
    ]
    return (
        f"The figure's last panel shows the histogram. Batch {tests['batch']} against 64 normal "
        f"batches:\n\n"
        f"{table(['test', 'this batch', 'normal', 'robust sd apart'], test_rows, (1, 2, 3))}\n\n"
        f"Rare tokens are {tests['rare_target_share']:.1%} of its targets and carry "
        f"{tests['rare_loss_share']:.1%} of its loss; {tests['duplicate_share']:.1%} of its windows were "
        f"read before. The tokens that set the offending batches "
        f"apart most from the corpus:\n\n"
        f"{table(['id', 'token', 'count', 'expected'], token_rows, (0, 2, 3))}"
    )


def offending_text(spike: dict[str, Any]) -> str:
    quotes = "\n".join(
        f"- batch {quote['batch']}: {code(quote['text'])} (scheduled there: "
        f"{', '.join(code(name) for name in quote['documents'])})"
        for quote in spike["quotes"]
    )
    return (
        "How the first sequence of each offending batch begins, as the trainer read it, and the "
        f"documents that the run had scheduled for it:\n\n{quotes}"
    )


def cross_evaluation(spike: dict[str, Any]) -> str:
    cross = spike["cross_evaluation"]
    rows = [
        [
            str(suspect["batch"]),
            number(suspect["loss_before_nats"]),
            number(suspect["delta_before"], 1),
            number(suspect["loss_early_nats"]),
            number(suspect["delta_early"], 1),
        ]
        for suspect in cross["suspects"]
    ]
    before, early = cross["before_step"], cross["early_step"]
    header = [
        "batch",
        f"loss, weights of step {before}",
        "robust sd",
        f"loss, weights of step {early}",
        "robust sd",
    ]
    return (
        f"Forward passes only, no update. The {cross['controls']} control batches have a median of "
        f"{number(cross['control_median_before_nats'])} nats at step {before} and "
        f"{number(cross['control_median_early_nats'])} at step {early}. A batch that stands out by "
        f"more than {SUSPECT_DELTA:g} on both was bad before anything was learnt from it.\n\n"
        f"{table(header, rows, (0, 1, 2, 3, 4))}"
    )
