"""Stage `inference`: the selected run's checkpoint in every number format."""

from x1_pretrain import paths
from x1_pretrain.determinism import setup
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.inference.document import write_inference
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study


@exit_on_user_error
@charged("inference")
def main() -> None:
    study = load_study()
    profile = study.profile
    used = setup(profile.device, study.choice.seed)
    write_inference(
        checkpoint=paths.CHECKPOINT,
        tokens_dir=paths.TOKENS,
        model_id=study.choice.model,
        val_tokens=profile.train.val_tokens,
        settings=profile.inference,
        money=profile.money,
        device=used.device,
        output=paths.INFERENCE,
        measured=paths.MEASURED / "inference.json",
    )


if __name__ == "__main__":
    main()
