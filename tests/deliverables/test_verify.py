"""Whatever is changed after a run is named by the verifier, which runs nothing."""

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.deliverables.verify import differences, main, verify_lock
from x1_pretrain.errors import UserError


def edit(path: str, old: str, new: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    assert old in text
    Path(path).write_text(text.replace(old, new), encoding="utf-8")


def lines() -> list[str]:
    return [str(problem) for problem in verify_lock().problems]


def test_a_finished_study_is_verified_in_less_than_two_seconds(project: Path):
    start = time.process_time()
    result = verify_lock()
    assert time.process_time() - start < 2
    assert (result.problems, result.verified, result.absent) == ((), 5, 0)


def test_a_fresh_clone_has_no_cached_outputs(project: Path):
    shutil.rmtree("data")
    result = verify_lock()
    assert (result.problems, result.verified, result.absent) == ((), 3, 2)


@pytest.mark.parametrize(
    "path", ["runs/A.txt", "runs/B.txt", "all.txt", "data/shards/1.bin", "data/checked.txt"]
)
def test_one_changed_byte_of_any_output_is_named(project: Path, path: str):
    content = bytearray(Path(path).read_bytes())
    content[0] ^= 1
    stat = Path(path).stat()
    Path(path).chmod(0o644)
    Path(path).write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    found = lines()
    assert found
    assert Path(path).name in found[0]
    assert "is not what stage" in found[0]


def test_a_deleted_committed_output_is_named(project: Path):
    Path("runs/B.txt").unlink()
    assert "runs/B.txt: $: is missing; stage sweep@B made it" in lines()


def test_a_file_put_among_the_inputs_is_noticed(project: Path):
    Path("runs/C.txt").write_text("never ran\n")
    assert any(line.startswith("runs: $: changed since collect ran") for line in lines())


def test_changed_source_is_named_with_its_stages(project: Path):
    edit("make.py", "made", "mode")
    (line,) = lines()
    assert line.startswith("make.py: $: changed since check, prepare, sweep@A, sweep@B, collect ran")


def test_a_changed_source_folder_is_named(project: Path):
    edit("src/a.py", "1", "2")
    (line,) = lines()
    assert line.startswith("src: $: changed since prepare ran")


def test_what_dvc_ignores_may_change(project: Path):
    edit("src/__pycache__/a.pyc", "bytes", "other bytes")
    assert lines() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        (
            "params.yaml",
            "seed: 0",
            "seed: 1",
            "params.yaml: $.seed: is 1, in dvc.lock 0, for prepare",
        ),
        (
            "profile.yaml",
            "B: {d: 2}",
            "B: {d: 3}",
            "profile.yaml: $.sizes.B.d: is 3, in dvc.lock 2",
        ),
        ("profile.yaml", "3e-05", "4e-05", "$.train.lr: is 4e-05, in dvc.lock 3e-05, for sweep@A"),
        ("profile.yaml", "3e-05", "3e-05, x: 1", "$.train.x: is 1, in dvc.lock None"),
    ],
)
def test_a_changed_parameter_is_named_by_its_key(project: Path, file: str, old: str, new: str, line: str):
    edit(file, old, new)
    assert any(line in found for found in lines())


def test_a_parameter_written_otherwise_is_the_same(project: Path):
    edit("profile.yaml", "3e-05, steps: 1.0e+12", "0.00003, steps: 1000000000000.0")
    assert lines() == []


def test_a_new_and_a_removed_stage_are_named(project: Path):
    edit("params.yaml", "[A, B]", "[A, C]")
    edit("profile.yaml", "B: {d: 2}", "B: {d: 2}, C: {d: 2}")
    found = lines()
    assert any("$.stages.sweep@B: no such stage in dvc.yaml" in line for line in found)
    assert any("$.stages.sweep@C: stage of dvc.yaml that never ran" in line for line in found)


def test_a_changed_command_is_named(project: Path):
    edit("dvc.yaml", "make.py all.txt", "make.py ./all.txt")
    assert any("$.stages.collect.cmd: ran as" in line for line in lines())


def test_a_changed_list_of_inputs_is_named(project: Path):
    edit("dvc.yaml", "[make.py, data/shards]", "[make.py]")
    assert any("sweep@A.deps: has data/shards" in line for line in lines())


def test_a_lock_no_run_made_is_refused(project: Path):
    before, after = Path("dvc.lock").read_text(encoding="utf-8").split("  sweep@B:")
    digest = re.search(r"path: data/shards\n +hash: md5\n +md5: (\w+)\.dir", after)[1]
    after = after.replace(digest, "0" * 32, 1)
    Path("dvc.lock").write_text(f"{before}  sweep@B:{after}", encoding="utf-8")
    assert any("no run made this lock" in line for line in lines())


def test_the_command_names_a_foreign_measured_file(project: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(Path(__file__).parents[2] / paths.SCHEMAS, paths.SCHEMAS)
    write_json(paths.MEASURED / "old.json", {})
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    assert "measured/old.json: $: no stage writes this file" in capsys.readouterr().out


def test_a_missing_lock_says_what_to_do(project: Path):
    Path("dvc.lock").unlink()
    with pytest.raises(UserError, match=r"dvc\.lock: no such file here; .*dvc repro"):
        verify_lock()


def test_a_broken_pipeline_is_one_sentence(project: Path):
    edit("dvc.yaml", "outs: [data/shards]", "outz: [data/shards]")
    with pytest.raises(UserError, match=r"dvc\.yaml: DVC cannot load it") as error:
        verify_lock()
    assert "\n" not in str(error.value)


values = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@given(values, values)
def test_values_differ_exactly_when_a_leaf_does(old, new):
    found = list(differences(old, new, "k"))
    assert (found == []) == (old == new)
    assert all(key.startswith("k") for key, _, _ in found)
