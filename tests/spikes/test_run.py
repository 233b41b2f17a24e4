"""The stage refuses an incident that could not work before it computes anything."""

import dataclasses
from pathlib import Path

import pytest

from x1_pretrain import paths
from x1_pretrain.config import Profile, Spike
from x1_pretrain.errors import UserError
from x1_pretrain.spikes.limits import check_spike
from x1_pretrain.study import load_profile

PROFILES = sorted((Path(__file__).parents[2] / paths.PROFILES).glob("*.yaml"))


def profile(spike: Spike) -> Profile:
    return dataclasses.replace(load_profile(PROFILES[-1]), spike=spike)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_profile_can_have_its_incident(path):
    check_spike(load_profile(path))


@pytest.mark.parametrize(
    ("spike", "message"),
    [
        (Spike(steps=400, at_step=260, batches=0), "spike.batches: 0"),
        (Spike(steps=400, at_step=60, batches=4), "spike.at_step: 60 .* at least 128"),
        (Spike(steps=265, at_step=260, batches=4), "spike.steps: 265 .* at least 284"),
    ],
)
def test_impossible_incidents_are_refused(spike, message):
    with pytest.raises(UserError, match=message):
        check_spike(profile(spike))
