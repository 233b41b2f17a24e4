"""Stage `check`: params.yaml and its profile, before anything is deleted, fetched or computed.

What it writes never changes: a valid edit re-runs only the stages whose own parameters it touches.
"""

from x1_pretrain import paths
from x1_pretrain.corpus.sources import check_sources
from x1_pretrain.deliverables.files import write_text
from x1_pretrain.economics.estimate import work_of
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.scaling.posterior import Sampling
from x1_pretrain.spikes.limits import check_spike
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    study = load_study()
    profile = study.profile
    check_sources(profile.corpus.sources)
    work_of(study)  # every run has room for its warm-up, branches and cool-down
    Sampling(profile.fit.walkers, profile.fit.draws)
    check_spike(profile)
    write_text(paths.CHECKED, "params.yaml and the profile that it names are valid\n")


if __name__ == "__main__":
    main()
