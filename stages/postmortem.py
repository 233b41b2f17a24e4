"""Stage `postmortem`: the incident as spike.json, spike.png and spike-postmortem.md."""

from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.spikes.postmortem import write_postmortem


@exit_on_user_error
def main() -> None:
    write_postmortem()


if __name__ == "__main__":
    main()
