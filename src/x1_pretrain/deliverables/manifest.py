"""The manifest of the selected run: the facts of its checkpoint beside what its machine costs.

It has no clock and no host, so that the same run has the same manifest; those are in measured/.
"""

from typing import Any

from x1_pretrain import paths
from x1_pretrain.config import Money
from x1_pretrain.deliverables.problems import InvalidDeliverablesError
from x1_pretrain.deliverables.schemas import check_value
from x1_pretrain.errors import UserError

# Where tracking.py mirrors the stages' runs, relative to the root of the project: its absolute place
# belongs to a machine, and the id of a run to its time, so that one is in the measured file.
MLFLOW_TRACKING_URI = "sqlite:///mlflow.db"


def build_manifest(run: dict[str, Any], money: Money) -> dict[str, Any]:
    """manifest.json from the checkpoint's run.json and section `money` of the profile.

    The price is the run's own: its dollars follow from it. Raises `UserError` if the profile's price
    was changed after the run and `InvalidDeliverablesError` if run.json is not what the schema says.
    """
    paid = run.get("price_usd_per_hour", money.price_usd_per_hour)
    if paid != money.price_usd_per_hour:
        raise UserError(
            f"{paths.CHECKPOINT / 'run.json'}: the run was paid with a price_usd_per_hour of {paid}, but "
            f"money.price_usd_per_hour of profile {run.get('profile')} is {money.price_usd_per_hour}; set it "
            f"back to {paid}, or train again with `dvc repro --force train`"
        )
    manifest = {
        **run,
        "price_source": money.price_source,
        "price_date": money.price_date,
        "cap_usd": money.cap_usd,
        "mlflow": {
            "tracking_uri": MLFLOW_TRACKING_URI,
            "experiment": f"{run.get('profile')}-train",
            "run_id_in": (paths.MEASURED / "train.json").as_posix(),
        },
    }
    problems = check_value(manifest, "manifest", str(paths.MANIFEST))
    if problems:
        raise InvalidDeliverablesError(problems)
    return manifest
