"""Stage `score`: the prediction against the observed loss of the trained run."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.runs import read_runs
from x1_pretrain.scaling.score import score_json
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    runs = read_runs(paths.RUNS_CSV)
    posterior = infer(runs, load_study().profile.fit).posterior
    prediction, metrics = read_json(paths.PREDICTION), read_json(paths.METRICS)
    write_json(paths.SCORE, score_json(prediction, metrics, posterior, runs.sha256))


if __name__ == "__main__":
    main()
