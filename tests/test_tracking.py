"""The mirror copies a run into MLflow, and no trouble with MLflow reaches the run."""

import time
from pathlib import Path

import mlflow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.tracking import OFF, Mirror, experiment_folder

PARAMS = {"model": "A", "seed": 0, "recipe.qk_norm": True}


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for all tests: MLflow takes seconds to make its tables."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    mlflow.MlflowClient(tracking_uri=uri).search_experiments()
    return uri


@pytest.fixture(autouse=True)
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def corrupt(tmp_path: Path) -> str:
    (tmp_path / "corrupt.db").write_bytes(b"no database at all" * 100)
    return f"sqlite:///{tmp_path / 'corrupt.db'}"


def stored(uri: str, run_id: str) -> mlflow.entities.Run:
    return mlflow.MlflowClient(tracking_uri=uri).get_run(run_id)


def use(mirror: Mirror) -> None:
    mirror.log([("train_loss", 3.5, 1), ("train_loss", 3.25, 2)])
    mirror.log([])
    mirror.finish([])


def test_off_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with Mirror(OFF, "off", "A-seed0", PARAMS, required=True) as mirror:
        use(mirror)
    assert mirror.mlflow_run_id is None
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


def test_a_run_is_stored_with_its_params_and_metrics(uri: str, capsys: pytest.CaptureFixture[str]):
    with Mirror(uri, "stored", "A-seed0", PARAMS, required=True) as mirror:
        use(mirror)
    run = stored(uri, mirror.mlflow_run_id)
    assert run.info.run_name == "A-seed0"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"model": "A", "seed": "0", "recipe.qk_norm": "True"}
    history = mlflow.MlflowClient(tracking_uri=uri).get_metric_history(run.info.run_id, "train_loss")
    assert [(m.step, m.value) for m in history] == [(1, 3.5), (2, 3.25)]
    assert capsys.readouterr().err == ""


def test_more_metrics_than_a_call_may_have_are_all_stored(uri: str):
    with Mirror(uri, "many", "A-seed0", {}) as mirror:
        mirror.log([("loss", 1.0, step) for step in range(1500)])
    assert len(mlflow.MlflowClient(tracking_uri=uri).get_metric_history(mirror.mlflow_run_id, "loss")) == 1500


def test_an_artifact_is_kept_in_the_project(uri: str, tmp_path: Path):
    (tmp_path / "curve.csv").write_text("step\n")
    with Mirror(uri, "artifacts", "A-seed0", {}) as mirror:
        mirror.finish([tmp_path / "curve.csv"])
    assert len(list((tmp_path / "mlruns/artifacts").rglob("curve.csv"))) == 1


def test_two_runs_share_an_experiment(uri: str):
    ids = set()
    for _ in range(2):
        with Mirror(uri, "shared", "A-seed0", PARAMS) as mirror:
            ids.add(stored(uri, mirror.mlflow_run_id).info.experiment_id)
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("not finite"), "FAILED"),
        (ValueError("a bug"), "FAILED"),
        (SystemExit(143), "KILLED"),
        (KeyboardInterrupt(), "KILLED"),
    ],
)
def test_a_run_that_ends_in_an_error_does_not_stay_running(uri: str, error: BaseException, status: str):
    with pytest.raises(type(error)), Mirror(uri, "errors", "A-seed0", PARAMS) as mirror:
        assert stored(uri, mirror.mlflow_run_id).info.status == "RUNNING"
        raise error
    assert stored(uri, mirror.mlflow_run_id).info.status == status


def test_a_run_left_without_a_word_is_finished(uri: str):
    with Mirror(uri, "errors", "A-seed0", PARAMS) as mirror:
        pass
    assert stored(uri, mirror.mlflow_run_id).info.status == "FINISHED"


def test_the_first_status_counts(uri: str):
    with pytest.raises(SystemExit), Mirror(uri, "errors", "A-seed0", PARAMS) as mirror:
        mirror.finish([])
        raise SystemExit(2)
    assert stored(uri, mirror.mlflow_run_id).info.status == "FINISHED"


def test_a_corrupt_store_is_one_line_at_once_and_the_run_goes_on(
    corrupt: str, capsys: pytest.CaptureFixture[str]
):
    start = time.monotonic()
    with Mirror(corrupt, "corrupt", "A-seed0", PARAMS) as mirror:
        use(mirror)
    assert time.monotonic() - start < 5
    assert mirror.mlflow_run_id is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("MLflow mirror stopped") and "corrupt.db: file is not a database" in line


def test_a_corrupt_store_that_was_asked_for_is_refused(corrupt: str):
    with pytest.raises(UserError, match=r"--mlflow-uri sqlite.*corrupt\.db: file is not a database") as error:
        Mirror(corrupt, "corrupt", "A-seed0", PARAMS, required=True)
    assert "\n" not in str(error.value)


def test_a_store_spoiled_behind_its_header_is_found_too(uri: str, tmp_path: Path):
    content = bytearray(Path(uri.removeprefix("sqlite:///")).read_bytes()[:8192])
    content[100:4096] = b"\xff" * 3996
    (tmp_path / "spoiled.db").write_bytes(content)
    with pytest.raises(UserError, match=r"spoiled\.db: "):
        Mirror(f"sqlite:///{tmp_path / 'spoiled.db'}", "spoiled", "A-seed0", PARAMS, required=True)


def test_a_place_that_is_no_file_or_no_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    for place, reason in (("file/mlflow.db", "not a folder"), ("folder", "not a file")):
        with pytest.raises(UserError, match=reason):
            Mirror(f"sqlite:///{tmp_path / place}", "places", "A-seed0", PARAMS, required=True)


@pytest.mark.parametrize("exists", [True, False])
def test_a_place_without_permission_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
):
    if exists:
        (tmp_path / "mlflow.db").touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)  # tests may run as root, who may do anything
    with pytest.raises(UserError, match="that can be written to"):
        Mirror(f"sqlite:///{tmp_path / 'mlflow.db'}", "closed", "A-seed0", PARAMS, required=True)


def test_an_unknown_kind_of_store_is_one_line_or_refused(capsys: pytest.CaptureFixture[str]):
    assert Mirror("nonsense://x", "unknown", "A-seed0", PARAMS).mlflow_run_id is None
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(UserError, match="--mlflow-uri nonsense://x: MLflow cannot use it"):
        Mirror("nonsense://x", "unknown", "A-seed0", PARAMS, required=True)


def test_a_store_that_fails_during_the_run_is_one_line(uri: str, capsys: pytest.CaptureFixture[str]):
    with Mirror(uri, "late", "A-seed0", PARAMS, required=True) as mirror:
        mlflow.MlflowClient(tracking_uri=uri).delete_run(mirror.mlflow_run_id)  # takes no more metrics
        mirror.log([("train_loss", 3.5, 1)])
        assert mirror.mlflow_run_id is None
        use(mirror)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("MLflow mirror stopped")


@pytest.mark.parametrize("name", ["tiny-A", "a/b", "a..b", "X1 seed 0"])
def test_an_experiment_names_a_folder_of_runs(name: str):
    assert experiment_folder(name) == Path("runs") / name


@pytest.mark.parametrize("name", ["", ".", "..", "/tmp/x", "a/../../b", "../b", "a\0b", "a\nb"])
def test_an_experiment_outside_of_runs_is_refused(name: str):
    with pytest.raises(UserError, match="--mlflow-experiment"):
        experiment_folder(name)


@given(st.text(alphabet="ab./~\\ \0", max_size=12))
def test_every_folder_lies_below_runs(name: str):
    try:
        folder = experiment_folder(name)
    except UserError:
        return
    runs = Path("runs").resolve()
    assert runs in folder.resolve().parents
