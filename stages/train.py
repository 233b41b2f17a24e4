"""Stage `train`: the selected model, with its checkpoint, metrics and loss curve."""

from x1_pretrain import paths, record
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.run_spec import spec_of
from x1_pretrain.spending import process_start_s
from x1_pretrain.study import load_study
from x1_pretrain.tracking import default_uri
from x1_pretrain.train import train


@exit_on_user_error
def main() -> None:
    study = load_study()
    spec = spec_of(study, study.choice.model, "train", "train")

    def deliver(finished: record.Finished) -> None:
        record.write_run(finished, paths.CHECKPOINT, paths.METRICS, paths.CURVE)
        record.write_measured(finished, paths.MEASURED / "train.json")

    since_s = process_start_s()
    train(spec, paths.TOKENS, default_uri(), f"{study.choice.profile}-train", deliver, since_s=since_s)


if __name__ == "__main__":
    main()
