"""Stage `sweep`: one model of the IsoFLOP set, with a cooled-down branch at each fraction of D."""

import sys

from x1_pretrain import paths, record
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.run_spec import spec_of
from x1_pretrain.spending import process_start_s
from x1_pretrain.study import load_study
from x1_pretrain.tracking import default_uri
from x1_pretrain.train import train


@exit_on_user_error
def main() -> None:
    study, model = load_study(), sys.argv[1]
    spec = spec_of(study, model, "sweep", f"sweep-{model}", study.profile.sweep.branches)
    folder = paths.SWEEP / model

    def deliver(finished: record.Finished) -> None:
        record.write_run(finished, folder, folder / "metrics.json", paths.SWEEP_CURVES / f"{model}.csv")
        write_json(paths.SWEEP_RUNS / f"{model}.json", record.sweep_run(finished))
        record.write_measured(finished, paths.MEASURED / f"sweep-{model}.json")

    since_s = process_start_s()
    train(spec, paths.TOKENS, default_uri(), f"{study.choice.profile}-sweep", deliver, since_s=since_s)


if __name__ == "__main__":
    main()
