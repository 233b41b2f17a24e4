"""A mirror of each run in MLflow. Git and dvc.lock are the truth; nothing here can change a result.

The store is an SQLite file at an absolute place, so that runs of `dvc exp run --temp`, which work in a
temporary copy of the project, are kept too.
"""

import logging
import os
import re
import sqlite3
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from x1_pretrain.errors import UserError
from x1_pretrain.paths import project_root

OFF = "off"
SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(?!:memory:)(?P<path>[^?]+)")
METRICS_PER_CALL = 1000  # MLflow's limit


def default_uri() -> str:
    """`sqlite:///<project>/mlflow.db`."""
    return f"sqlite:///{project_root() / 'mlflow.db'}"


def experiment_folder(name: str) -> Path:
    """`runs/<name>`, where a run started by hand writes. Raises `UserError` if that is not below `runs`."""
    path = Path(name)
    if not name.isprintable() or not path.parts or path.is_absolute() or ".." in path.parts:
        raise UserError(
            f"--mlflow-experiment {name!r}: it names the output folder below runs/, so it must be a relative "
            "name without `..`, such as tiny-A"
        )
    return Path("runs") / path


class Mirror:
    """One MLflow run; with the uri `off`, none. As a context manager it closes the run in any case.

    A mirror must not stop a training: the first failure is one line on stderr and turns the mirror off.
    Only where the user asked for this store (`required`) is one that cannot be opened a `UserError`.
    """

    def __init__(
        self, uri: str, experiment: str, run_id: str, params: dict[str, Any], required: bool = False
    ) -> None:
        self.mlflow_run_id: str | None = None
        self._client: Any = None  # an MlflowClient while there is a run to write to
        if uri == OFF:
            return
        try:
            refuse_unusable_sqlite(uri)
            self._open(uri, experiment, run_id, params)
        except Exception as error:  # MLflow lets errors of SQLAlchemy, alembic and requests through
            if required:
                raise UserError(f"--mlflow-uri {uri}: MLflow cannot use it ({_line(error)})") from error
            self._give_up(error)

    def _open(self, uri: str, experiment: str, run_id: str, params: dict[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if uri.startswith("file:"):
            # The lab's commands use file stores, which MLflow 3 opens only on request.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        import mlflow  # a second of import time that other stages should not pay
        from mlflow.entities import Param

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(experiment)
        place = (project_root() / "mlruns" / experiment).as_uri()
        number = found.experiment_id if found else client.create_experiment(experiment, place)
        run = client.create_run(number, run_name=run_id)
        self._client, self.mlflow_run_id = client, run.info.run_id
        client.log_batch(self.mlflow_run_id, params=[Param(key, str(value)) for key, value in params.items()])

    def log(self, metrics: list[tuple[str, float, int]]) -> None:
        """(name, value, step) triples, in as few calls as MLflow allows."""
        if self._client is None:
            return
        try:
            from mlflow.entities import Metric

            batch = [Metric(name, value, 0, step) for name, value, step in metrics]
            for i in range(0, len(batch), METRICS_PER_CALL):
                self._client.log_batch(self.mlflow_run_id, metrics=batch[i : i + METRICS_PER_CALL])
        except Exception as error:
            self._give_up(error)

    def finish(self, artifacts: list[Path], status: str = "FINISHED") -> None:
        """Attach files and close the run; from then on nothing more is written, its id stays known."""
        if self._client is None:
            return
        try:
            for path in artifacts:
                self._client.log_artifact(self.mlflow_run_id, str(path))
            self._client.set_terminated(self.mlflow_run_id, status)
            self._client = None
        except Exception as error:
            self._give_up(error)

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A run that is still open ends KILLED when the process was told to stop, FAILED on an error."""
        if kind is None:
            self.finish([])
        elif issubclass(kind, Exception):
            self.finish([], "FAILED")
        else:  # SystemExit, KeyboardInterrupt
            self.finish([], "KILLED")

    def _give_up(self, error: Exception) -> None:
        print(f"MLflow mirror stopped, the run goes on without it: {_line(error)}", file=sys.stderr)
        self._client = self.mlflow_run_id = None


def refuse_unusable_sqlite(uri: str) -> None:
    """Raise at once for an SQLite file that MLflow would try to open for 100 seconds before it gave up.

    `OSError` where nothing can be written, `sqlite3.Error` for a file that is not an SQLite database.
    Other kinds of store, and a file that does not exist yet, pass.
    """
    match = SQLITE.fullmatch(uri.partition("?")[0])
    if match is None:
        return
    path = Path(match["path"])
    if not path.exists():  # MLflow makes the folders that lack
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise OSError(f"{folder} is not a folder that can be written to")
        return
    if not path.is_file() or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        # SQLite puts its journal beside the file.
        raise OSError(f"{path} is not a file that can be written to, in a folder that can")
    connection = sqlite3.connect(path)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")  # reads the header and parses the schema
    except sqlite3.Error as error:
        raise sqlite3.DatabaseError(f"{path}: {error}") from error
    finally:
        connection.close()


def _line(error: Exception) -> str:
    """The first line of a message; SQLAlchemy's go on with the statement and a link."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
