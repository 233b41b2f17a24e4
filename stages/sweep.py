"""Stage `sweep`: one model of the IsoFLOP set, with a cooled-down branch at each fraction of D.

With sweep.seeds above 1 the model is trained again with the next seeds, which show how much of a loss is
luck. They come first, so that one file has all the points when the run of the study's own seed is handed
over; a kill among them costs the seeds that were finished, which then train again.
"""

import dataclasses
import sys
from typing import Any

from x1_pretrain import paths, record
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.run_spec import RunSpec, spec_of
from x1_pretrain.spending import process_start_s
from x1_pretrain.study import Study, load_study
from x1_pretrain.tracking import default_uri
from x1_pretrain.train import train


@exit_on_user_error
def main() -> None:
    study, model = load_study(), sys.argv[1]
    first, seeds = study.choice.seed, study.choice.sweep.seeds
    experiment = f"{study.choice.profile}-sweep"
    since_s = [process_start_s(), *[None] * (seeds - 1)]  # the process starts once, and is charged once
    replicates = [replicate(study, model, first + k, experiment, since_s[k - 1]) for k in range(1, seeds)]
    folder = paths.SWEEP / model

    def deliver(finished: record.Finished) -> None:
        record.write_run(finished, folder, folder / "metrics.json", paths.SWEEP_CURVES / f"{model}.csv")
        content = record.sweep_run(finished) | {"replicates": replicates}
        write_json(paths.SWEEP_RUNS / f"{model}.json", content)
        record.write_measured(finished, paths.MEASURED / f"sweep-{model}.json")

    own = spec(study, model, f"sweep-{model}")
    train(own, paths.TOKENS, default_uri(), experiment, deliver, since_s=since_s[-1])


def replicate(study: Study, model: str, seed: int, experiment: str, since_s: float | None) -> dict[str, Any]:
    """The points of the same model with another seed, whose weights nobody needs."""
    other = dataclasses.replace(study, choice=dataclasses.replace(study.choice, seed=seed))
    points: list[dict[str, Any]] = []
    train(
        spec(other, model, f"sweep-{model}-seed{seed}"),
        paths.TOKENS,
        default_uri(),
        experiment,
        lambda finished: points.append(record.sweep_run(finished)),
        since_s=since_s,
    )
    (run,) = points
    return {key: run[key] for key in ("run_id", "seed", "points")}


def spec(study: Study, model: str, output: str) -> RunSpec:
    return spec_of(study, model, "sweep", output, study.profile.sweep.branches)


if __name__ == "__main__":
    main()
