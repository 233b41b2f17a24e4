"""Stage `loss-curve`: the picture of the selected run's curve.csv."""

from x1_pretrain import paths
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.report.figures import write_loss_curve
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    study = load_study()
    title = f"{study.choice.model}, N = {study.shape.N:,} non-embedding parameters"
    write_loss_curve(paths.CURVE, paths.LOSS_CURVE, title)


if __name__ == "__main__":
    main()
