"""What a million tokens cost here, and what others ask for theirs."""

import json
from importlib.resources import files
from typing import Any

from x1_pretrain.config import Money
from x1_pretrain.economics.cost import usd_per_million_tokens
from x1_pretrain.inference.speed import Speed


def usd_of(speed: Speed, money: Money) -> dict[str, float | None]:
    """Dollars per million prompt tokens and written tokens on a machine that does nothing else.

    None where the machine costs nothing.
    """
    rates = {"input": speed.prefill_tokens_per_s, "output": speed.decode_tokens_per_s}
    price = money.price_usd_per_hour
    return {
        f"usd_per_million_{kind}_tokens": usd_per_million_tokens(price, rate) if price else None
        for kind, rate in rates.items()
    }


def reason_without_usd(money: Money) -> str | None:
    """Why there is no price of a token, None where there is one."""
    if money.price_usd_per_hour:
        return None
    return f"the profile's price is 0 $/h ({money.price_source})"


def public_prices() -> dict[str, Any]:
    """Published prices of open-weight models, with where and when they were read."""
    return json.loads(files("x1_pretrain.inference").joinpath("public_prices.json").read_text("utf-8"))
