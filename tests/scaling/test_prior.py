import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.prior import DEFAULT, load_prior


def test_the_prior_alone_brackets_the_published_ratios():
    law = load_prior().law(load_prior().sample(100_000, seed=0))
    low, median, high = np.quantile(law.d_opt(1e9) / 1e9, (0.025, 0.5, 0.975))
    assert low == pytest.approx(0.6, abs=0.1) and 15 < median < 24 and 250 < high < 360
    s = law.E / law.loss(25e6, 1e9)
    assert np.median(s) == pytest.approx(0.39, abs=0.01)


@given(log_N=st.floats(4, 11), log_D=st.floats(5, 13), seed=st.integers(0, 1000))
def test_the_coordinates_are_those_of_the_law_at_the_centre_of_the_runs(log_N, log_D, seed):
    N, D = 10**log_N, 10**log_D
    prior = dataclasses.replace(load_prior(), N=N, D=D)
    theta = prior.sample(20, seed)
    law = prior.law(theta)
    assert np.exp(theta[:, 0]) == pytest.approx(law.loss(N, D), rel=1e-6)
    assert 1 / (1 + np.exp(-theta[:, 1])) == pytest.approx(law.E / law.loss(N, D), rel=1e-6)
    balance = np.log(law.A * prior.N0**-law.alpha) - np.log(law.B * prior.D0**-law.beta)
    assert prior.standard(theta)[:, 2] == pytest.approx((balance - 0.2) / 0.35, rel=1e-5, abs=1e-5)


def test_draws_are_standard_normal_in_the_priors_own_terms(runs_of):
    prior = load_prior().at(runs_of([1e5, 1e6, 1e7], [1e7, 1e7, 1e8], [3.0, 3.0, 3.0]))
    centre = [prior.N, prior.D]
    assert centre == pytest.approx([1e6, 10 ** (22 / 3)])
    standard = prior.standard(prior.sample(50_000, seed=3))
    assert standard.mean(axis=0) == pytest.approx(np.zeros(7), abs=0.02)
    assert np.cov(standard.T) == pytest.approx(np.eye(7), abs=0.03)


def test_a_prior_without_a_key_or_with_a_bad_value_is_refused(tmp_path: Path):
    content = json.loads(DEFAULT.read_text())
    path = tmp_path / "prior.json"
    rho = content["coordinates"].pop("logit_rho")
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"prior\.json: the key 'logit_rho' is missing"):
        load_prior(path)
    content["coordinates"]["logit_rho"] = rho
    sd = content["coordinates"]["ln_alpha"].pop("sd")
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"prior\.json: the key 'sd' is missing"):
        load_prior(path)
    for bad, says in ((-sd, "above 0"), ("wide", "not a number")):
        content["coordinates"]["ln_alpha"]["sd"] = bad
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=says):
            load_prior(path)
