"""Stage `fetch`: pinned, hash-checked sources of text into data/raw."""

from x1_pretrain import paths
from x1_pretrain.corpus.sources import fetch_all
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study, profile_path


@exit_on_user_error
@charged("fetch")
def main() -> None:
    study = load_study()
    where = f"{profile_path(study.choice.profile)}.corpus.sources"
    fetch_all(study.profile.corpus.sources, study.profile.tokenizer, paths.RAW, where)


if __name__ == "__main__":
    main()
