"""Stage `spike`: an incident in a short run, its replays, its cause and its recovery."""

from x1_pretrain import paths
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.spending import charged
from x1_pretrain.spikes.run import run_spike_lab
from x1_pretrain.study import load_study


@exit_on_user_error
@charged("spike")
def main() -> None:
    measured = paths.MEASURED / "spike.json"
    run_spike_lab(load_study(), paths.TOKENS, paths.SPIKE_INCIDENT, measured)


if __name__ == "__main__":
    main()
