"""A peer's scripts are read and never run; what is missing is named."""

import sys
from pathlib import Path

import pytest
from contest.peer_source import argparse_defaults, constants, module_from, package_module, source_sha256

from x1_pretrain.errors import UserError

SCRIPT = """
raise SystemExit("this script must not run")
out_dir = 'out'
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.95
grad_clip = 1.0 # clip
parser.add_argument("--matrix-lr", type=float, default=0.02, help="lr")
parser.add_argument("--warmup-steps", type=int, default=40)
parser.add_argument("--run", default=name)
parser.add_argument("--fp8", action="store_true")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_numbers_are_read_from_a_script_that_is_not_run(script: Path) -> None:
    assert constants(script, ["weight_decay", "grad_clip"]) == {"weight_decay": 0.1, "grad_clip": 1.0}
    expected = {"matrix_lr": 0.02, "warmup_steps": 40.0}
    assert argparse_defaults(script, ["matrix_lr", "warmup_steps"]) == expected


@pytest.mark.parametrize("name", ["no_such_number", "out_dir"])
def test_a_constant_that_is_no_number_is_named(script: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"{script.name}.*{name}"):
        constants(script, [name])


@pytest.mark.parametrize("name", ["embedding_lr", "run", "fp8"])
def test_an_option_without_a_number_is_named(script: Path, name: str) -> None:
    with pytest.raises(UserError, match=name):
        argparse_defaults(script, [name])


def test_a_folder_that_is_no_checkout_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--peer.*train\.py"):
        constants(tmp_path / "train.py", ["beta1"])
    with pytest.raises(UserError, match=r"--peer.*model\.py"):
        module_from(tmp_path / "model.py", "absent_model")
    with pytest.raises(UserError, match=r"--peer.*gpt\.py"):
        package_module(tmp_path, "absent.gpt")


def test_a_package_that_the_peer_needs_is_named_and_the_path_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "needy").mkdir()
    (tmp_path / "needy/gpt.py").write_text("import no_such_package_anywhere")
    before = list(sys.path)
    with pytest.raises(UserError, match="no_such_package_anywhere"):
        package_module(tmp_path, "needy.gpt")
    assert sys.path == before


def test_the_hash_follows_the_files_that_were_used(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("a = 1")
    (tmp_path / "README.md").write_text("first")
    first = source_sha256(tmp_path, ["model.py"])
    (tmp_path / "README.md").write_text("second")
    assert source_sha256(tmp_path, ["model.py"]) == first
    (tmp_path / "model.py").write_text("a = 2")
    assert source_sha256(tmp_path, ["model.py"]) != first
