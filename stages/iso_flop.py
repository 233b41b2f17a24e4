"""Stage `iso-flop`: the figure of the IsoFLOP points, the law and its bands."""

from x1_pretrain import paths
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.figure import draw
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.runs import read_runs
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    draw(infer(read_runs(paths.RUNS_CSV), load_study().profile.fit), paths.ISO_FLOP)


if __name__ == "__main__":
    main()
