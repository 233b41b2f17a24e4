"""Training FLOP/s of our models over the matmul peak measured in the same run: one JSON line.

    python benchmarks/utilisation.py

FLOPs are counted as everywhere in the project (economics/flops.py). The peak is that of the precision the
models train in, the best of one measurement before each model and one after the last.
"""

import argparse
import json
import sys
from dataclasses import asdict

import torch
from shards import add_options, folder_for
from timing import step_seconds

from x1_pretrain.corpus.loader import Tokens, TrainLoader
from x1_pretrain.determinism import setup
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.meters import measured_peak
from x1_pretrain.run_spec import spec_of
from x1_pretrain.study import study_from


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", default="tiny", help="a profile, or a file of one")
    parser.add_argument("--models", default="A,B,C,X1", help="of the profile, with commas between")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each model")
    add_options(parser, vocab=None)
    options = parser.parse_args(argv)
    if options.steps < 1:
        raise UserError(f"--steps {options.steps}: must be at least 1")
    study = study_from(options.config)
    models, train = options.models.split(","), study.profile.train
    for model in models:
        study.shape_of(model)
    loader = TrainLoader(
        Tokens(folder_for(options, study)), train.seq_len, train.batch_sequences, study.choice.seed
    )
    used = setup(study.profile.device, study.choice.seed)
    n_vocab, peaks, flops_per_s = loader.tokens.n_vocab, [], {}
    for model in models:
        peaks.append(measured_peak(used))
        spec = spec_of(study, model, "utilisation", "utilisation")
        last = spec.schedule.total_steps
        step_s = step_seconds(study, model, loader, used, options.steps)
        flops_per_s[model] = spec.flops(n_vocab, last - 1, last) / step_s
        print(f"{model}: {train.batch_tokens / step_s:.0f} tokens/s", file=sys.stderr, flush=True)
    peaks.append(measured_peak(used))
    result = {
        "benchmark": "utilisation",
        "ratio": {model: flops_per_s[model] / max(peaks) for model in models},
        "flops_per_s": flops_per_s,
        "measured_peak": max(peaks),
        "measured_peaks": peaks,
        "profile": study.choice.profile,
        "recipe": asdict(study.choice.recipe),
        "n_vocab": n_vocab,
        "used": asdict(used),
        "torch": torch.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
