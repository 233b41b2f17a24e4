"""Five kills of a running training, one of each kind: the next `dvc repro` ends with the same bytes.

`benchmarks/kills.py --kills 30` is the long version.
"""

import importlib
import random
import sys

import pytest

from tests.e2e.conftest import REPO, fresh_project

sys.path.insert(0, str(REPO / "benchmarks"))  # as `python benchmarks/kills.py` has it
kills = importlib.import_module("kills")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_killed_run_ends_with_the_bytes_of_an_undisturbed_one(tmp_path):
    project, n_kills = fresh_project(tmp_path / "project"), len(kills.KINDS)
    kills.prepare(project, n_kills)
    expected = kills.undisturbed(project)
    tally = kills.disturbed(project, n_kills, random.Random(0))
    assert tally.hits == dict.fromkeys(kills.KINDS, 1)
    assert tally.resumes >= 1, "a run that began anew each time would end the same, and prove nothing"
    assert all(outcome == expected for outcome in tally.outcomes)
