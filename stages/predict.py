"""Stage `predict`: D_opt of the target size and the loss of the runs the fit has not seen."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, write_json, write_text
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.fit import infer
from x1_pretrain.scaling.prediction import planned_runs, prediction_json
from x1_pretrain.scaling.prediction_text import prediction_markdown
from x1_pretrain.scaling.runs import read_runs
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    study = load_study()
    profile = study.profile
    domains = [source.domain for source in profile.corpus.sources]
    content = prediction_json(
        infer(read_runs(paths.RUNS_CSV), profile.fit),
        profile.fit.target_params,
        planned_runs(profile, study.choice.recipe, study.choice.sweep.models),
        {"tokenizer": profile.tokenizer.name, "domains": domains},
    )
    write_json(paths.PREDICTION, content)
    write_text(paths.PREDICTION_MD, prediction_markdown(read_json(paths.FIT), content))


if __name__ == "__main__":
    main()
