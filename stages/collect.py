"""Stage `collect`: the sweep's runs as one table, runs.csv."""

from x1_pretrain import paths
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.collect import collect
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    models = load_study().choice.sweep.models
    collect([paths.SWEEP_RUNS / f"{model}.json" for model in models], paths.RUNS_CSV)


if __name__ == "__main__":
    main()
