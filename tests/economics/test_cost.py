import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.economics.cost import (
    checked_price,
    estimate_run,
    kv_cache_bytes,
    usd_for,
    usd_per_million_tokens,
)
from x1_pretrain.errors import UserError


@pytest.mark.parametrize("bad", [None, -0.01, math.nan, math.inf, "1.1", True])
def test_bad_prices_are_refused(bad):
    with pytest.raises(UserError, match="price"):
        checked_price(bad)


def test_usd_for_a_day_at_the_cap():
    assert usd_for(24 * 3600, 2.0833) == pytest.approx(50.0, abs=0.01)
    with pytest.raises(UserError, match="elapsed_s"):
        usd_for(-1, 1.0)


def test_estimate_agrees_with_the_research_table():
    """5B tokens of the 50M example: 1.78e18 FLOP at 35% of an A100 is 4.5 h, 6.3 $ at 1.39 $/h."""
    run = estimate_run(1.78e18, 312e12, 0.35, 1.39)
    assert run.hours == pytest.approx(4.5, abs=0.05)
    assert run.usd == pytest.approx(6.3, abs=0.05)


@pytest.mark.parametrize("mfu", [0.0, 1.01, math.nan])
def test_estimate_refuses_an_impossible_mfu(mfu):
    with pytest.raises(UserError, match="mfu"):
        estimate_run(1e18, 1e12, mfu, 1.0)


@given(st.floats(0, 100), st.floats(1e-3, 1e6))
def test_price_of_a_million_tokens_is_its_seconds_times_the_price(price, tokens_per_s):
    expected = usd_for(1e6 / tokens_per_s, price)
    assert usd_per_million_tokens(price, tokens_per_s) == pytest.approx(expected, rel=1e-9)


def test_kv_cache_of_a_known_model():
    """Llama-3 8B: 32 layers, 8 KV heads of 128, bf16: 128 KiB per token."""
    assert kv_cache_bytes(32, 8, 128, 2, tokens=1) == 128 * 1024
    assert kv_cache_bytes(32, 32, 128, 2, tokens=10, batch=3) == 4 * 30 * 128 * 1024
