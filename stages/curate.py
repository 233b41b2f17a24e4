"""Stage `curate`: data/raw into kept, deduplicated, split documents."""

from x1_pretrain import paths
from x1_pretrain.corpus.curation import curate
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study, profile_path


@exit_on_user_error
@charged("curate")
def main() -> None:
    study = load_study()
    where = f"{profile_path(study.choice.profile)}.corpus.sources"
    profile = study.profile
    summary = curate(profile.corpus.sources, profile.curation, paths.RAW, paths.DOCUMENTS, where)
    write_json(paths.CURATION, summary)


if __name__ == "__main__":
    main()
