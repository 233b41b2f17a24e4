"""Stage `fit`: the scaling law of runs.csv, with its intervals."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.envelope import envelope, read_curves
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.fit_json import fit_json
from x1_pretrain.scaling.runs import read_runs
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study


@exit_on_user_error
@charged("fit")
def main() -> None:
    settings = load_study().profile.fit
    runs = read_runs(paths.RUNS_CSV)
    steps = envelope(read_curves(paths.SWEEP_CURVES, runs))
    write_json(paths.FIT, fit_json(infer(runs, settings), settings, steps))


if __name__ == "__main__":
    main()
