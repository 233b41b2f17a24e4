"""A mirror of each run in MLflow. Git and dvc.lock are the truth; nothing here can change a result.

The store is an SQLite file at an absolute place, so that runs of `dvc exp run --temp`, which work in a
temporary copy of the project, are kept too.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Any

from x1_pretrain.errors import UserError
from x1_pretrain.paths import scratch_root

OFF = "off"


def default_uri() -> str:
    """`sqlite:///<project>/mlflow.db`."""
    return f"sqlite:///{scratch_root().resolve().parent / 'mlflow.db'}"


class Mirror:
    """One MLflow run; with the uri `off`, none.

    Methods do nothing once a call has failed: a mirror must not stop a training.
    """

    def __init__(self, uri: str, experiment: str, run_id: str, params: dict[str, Any]) -> None:
        self.mlflow_run_id: str | None = None
        if uri == OFF:
            return
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if uri.startswith("file:"):
            # The lab's commands use file stores, which MLflow 3 opens only on request.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        import mlflow  # a second of import time that other stages should not pay
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self.client = mlflow.MlflowClient(tracking_uri=uri)
        self._failures = (MlflowException, OSError)
        try:
            found = self.client.get_experiment_by_name(experiment)
            place = (scratch_root().resolve().parent / "mlruns" / experiment).as_uri()
            number = found.experiment_id if found else self.client.create_experiment(experiment, place)
            run = self.client.create_run(number, run_name=run_id)
            self.mlflow_run_id = run.info.run_id
            for key, value in params.items():
                self.client.log_param(self.mlflow_run_id, key, value)
        except self._failures as error:
            raise UserError(f"--mlflow-uri {uri}: MLflow cannot use it ({error})") from error

    def log(self, metrics: list[tuple[str, float, int]]) -> None:
        """(name, value, step) triples, in one batch."""
        if self.mlflow_run_id is None:
            return
        from mlflow.entities import Metric

        try:
            batch = [Metric(name, value, 0, step) for name, value, step in metrics]
            for i in range(0, len(batch), 1000):  # MLflow's limit per call
                self.client.log_batch(self.mlflow_run_id, metrics=batch[i : i + 1000])
        except self._failures as error:
            self._give_up(error)

    def finish(self, artifacts: list[Path], status: str = "FINISHED") -> None:
        """Attach files and close the run."""
        if self.mlflow_run_id is None:
            return
        try:
            for path in artifacts:
                self.client.log_artifact(self.mlflow_run_id, str(path))
            self.client.set_terminated(self.mlflow_run_id, status)
        except self._failures as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        print(f"MLflow mirror stopped: {error}", file=sys.stderr)
        self.mlflow_run_id = None
