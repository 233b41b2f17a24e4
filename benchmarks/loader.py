"""Tokens/s of the loader over tokens/s that training consumes: one JSON line; above 1 nothing waits.

python benchmarks/loader.py --model A
"""

import argparse
import json
from dataclasses import asdict

import torch
from shards import add_options, folder_for
from timing import seconds, step_seconds

from x1_pretrain.corpus.loader import Tokens, TrainLoader
from x1_pretrain.determinism import setup
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.study import study_from


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", default="tiny", help="a profile, or a file of one")
    parser.add_argument("--model", default="A", help="of the profile; the smallest is the hungriest")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of training")
    parser.add_argument("--batches", type=int, default=300, help="timed batches of the loader")
    add_options(parser, vocab=None)
    options = parser.parse_args(argv)
    for name in ("steps", "batches"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: must be at least 1")
    study = study_from(options.config)
    study.shape_of(options.model)
    train = study.profile.train
    tokens = Tokens(folder_for(options, study))
    loader = TrainLoader(tokens, train.seq_len, train.batch_sequences, study.choice.seed)
    used = setup(study.profile.device, study.choice.seed)
    batch_s = loading_seconds(loader, options.batches)
    step_s = step_seconds(study, options.model, loader, used, options.steps)
    result = {
        "benchmark": "loader",
        "ratio": step_s / batch_s,
        "loader_tokens_per_s": train.batch_tokens / batch_s,
        "training_tokens_per_s": train.batch_tokens / step_s,
        "model": options.model,
        "profile": study.choice.profile,
        "recipe": asdict(study.choice.recipe),
        "used": asdict(used),
        "torch": torch.__version__,
    }
    print(json.dumps(result))


def loading_seconds(loader: TrainLoader, n_batches: int) -> float:
    """Mean seconds of a batch, the permutation of an epoch included where one is due."""
    return seconds(lambda: [loader.batch(step) for step in range(n_batches)]) / n_batches


if __name__ == "__main__":
    main()
