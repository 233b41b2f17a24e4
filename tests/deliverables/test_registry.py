from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.deliverables.registry import entry_of, present
from x1_pretrain.errors import UserError


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (paths.MANIFEST, "manifest"),
        (paths.SWEEP_RUNS / "A.json", "sweep-run"),
        (paths.RUNS_CSV, "runs"),
        (paths.POSTMORTEM, "spike-postmortem"),
        (paths.MEASURED / "sweep-A.json", "measured-run"),
        (Path("/elsewhere") / paths.CURVE, "curve"),
    ],
)
def test_a_file_is_known_by_its_path(path: Path, schema: str):
    assert entry_of(path).schema == schema


def test_another_file_is_refused_with_the_list():
    with pytest.raises(UserError, match=r"notes\.json: not a deliverable of a study; those are"):
        entry_of(Path("notes.json"))


def test_what_must_be_there_is_listed_even_when_it_is_not(tmp_path: Path):
    (tmp_path / paths.SWEEP_RUNS).mkdir(parents=True)
    for model in "BA":
        (tmp_path / paths.SWEEP_RUNS / f"{model}.json").write_text("{}")
    listed = [path for path, _ in present(tmp_path)]
    assert paths.MANIFEST in listed
    assert [p for p in listed if p.parent == paths.SWEEP_RUNS] == [
        paths.SWEEP_RUNS / "A.json",
        paths.SWEEP_RUNS / "B.json",
    ]


def test_measured_files_are_listed_only_on_request(tmp_path: Path):
    (tmp_path / paths.MEASURED).mkdir(parents=True)
    (tmp_path / paths.MEASURED / "train.json").write_text("{}")
    train = paths.MEASURED / "train.json"
    assert train not in [path for path, _ in present(tmp_path)]
    assert train in [path for path, _ in present(tmp_path, measured=True)]
