"""`make sky-check`: does SkyPilot itself accept the task? Offline, in an environment of its own.

It is no part of the tests: SkyPilot needs 460 MB and a version of click that the project cannot have.
"""

import sys
from pathlib import Path

import jsonschema
import sky
import yaml
from sky.utils import schemas


def check(path: Path) -> None:
    """Raise if SkyPilot's schemas or its parser refuse the file, or the kill is not unconditional."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["secrets"] = dict.fromkeys(content["secrets"], "set in the environment")
    jsonschema.validate(content, schemas.get_task_schema())
    jsonschema.validate(content["resources"], schemas.get_resources_schema())
    expected = (True, content["resources"]["autostop"]["idle_minutes"], True, "none")
    (resources,) = sky.Task.from_yaml_config(content).resources  # takes parts out of its argument
    stop = resources.autostop_config
    understood = (stop.enabled, stop.idle_minutes, stop.down, stop.wait_for and stop.wait_for.value)
    if understood != expected:
        sys.exit(f"error: {path}: SkyPilot reads autostop as {understood} instead of {expected}")
    print(f"{path}: SkyPilot {sky.__version__} accepts it and stops after {stop.idle_minutes} minutes")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        check(Path(name))
