"""Stage `manifest`: what ran, with what, at which price, with which result."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import read_json, write_json
from x1_pretrain.deliverables.manifest import build_manifest
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.study import load_study


@exit_on_user_error
def main() -> None:
    run = read_json(paths.CHECKPOINT / "run.json")
    write_json(paths.MANIFEST, build_manifest(run, load_study().profile.money))


if __name__ == "__main__":
    main()
