"""Stage `fit`: the scaling law of runs.csv, with its intervals."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.fit import fit_json, infer
from x1_pretrain.scaling.runs import read_runs
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study


@exit_on_user_error
@charged("fit")
def main() -> None:
    settings = load_study().profile.fit
    write_json(paths.FIT, fit_json(infer(read_runs(paths.RUNS_CSV), settings), settings))


if __name__ == "__main__":
    main()
