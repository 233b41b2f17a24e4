import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.prior import DEFAULT, load_prior, move_reference


def test_the_prior_alone_brackets_the_published_ratios():
    law = load_prior().law(load_prior().sample(100_000, seed=0))
    low, median, high = np.quantile(law.d_opt(1e9) / 1e9, (0.025, 0.5, 0.975))
    assert low == pytest.approx(0.6, abs=0.1) and 15 < median < 24 and 250 < high < 360
    s = law.E / law.loss(25e6, 1e9)
    assert np.median(s) == pytest.approx(0.39, abs=0.01)


@given(ln_N=st.floats(-10, 10), ln_D=st.floats(-10, 10), seed=st.integers(0, 1000))
def test_moving_the_reference_keeps_the_law_and_can_be_undone(ln_N: float, ln_D: float, seed: int):
    prior = load_prior()
    theta = prior.sample(20, seed)
    moved = move_reference(theta, ln_N, ln_D)
    law = prior.law(theta)
    N, D = prior.N0 * np.exp(ln_N), prior.D0 * np.exp(ln_D)
    assert np.exp(moved[:, 0]) == pytest.approx(law.loss(N, D), rel=1e-6)
    assert np.exp(moved[:, 0]) / (1 + np.exp(-moved[:, 1])) == pytest.approx(law.E, rel=1e-6)
    assert move_reference(moved, -ln_N, -ln_D) == pytest.approx(theta, rel=1e-5, abs=1e-6)


def test_moving_the_reference_keeps_volumes():
    theta = load_prior().sample(5, seed=1)
    for row in theta:
        columns = []
        for i in range(6):
            step = np.zeros(6)
            step[i] = 1e-5
            ends = move_reference(np.stack([row + step, row - step]), -3.0, 2.0)
            columns.append((ends[0] - ends[1]) / 2e-5)
        assert np.linalg.det(np.array(columns)) == pytest.approx(1.0, abs=1e-6)


def test_a_prior_without_a_key_or_with_a_bad_value_is_refused(tmp_path: Path):
    content = json.loads(DEFAULT.read_text())
    path = tmp_path / "prior.json"
    sd = content["coordinates"]["ln_alpha"].pop("sd")
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"prior\.json: the key 'sd' is missing"):
        load_prior(path)
    for bad, says in ((-sd, "above 0"), ("wide", "not a number")):
        content["coordinates"]["ln_alpha"]["sd"] = bad
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=says):
            load_prior(path)
