"""A side lives in its own process: values and errors come back, its prints and settings stay there."""

import os

import pytest
from contest.processes import Side

from x1_pretrain.errors import UserError


class Counter:
    """Something with a state, and every way to fail."""

    def __init__(self, start: int) -> None:
        if start < 0:
            raise UserError("start: must be at least 0")
        self.value = start

    def add(self, n: int) -> int:
        print("a side prints")
        self.value += n
        return self.value

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def refuse(self) -> None:
        raise UserError("count: too high")

    def break_down(self) -> None:
        raise ZeroDivisionError("one over nothing")

    def die(self) -> None:
        os._exit(7)


def test_a_side_keeps_state_and_environment_to_itself_and_survives_errors(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Side({"A_SIDE_HAS": "this"}, Counter, 5) as side:
        assert side.call("add", 2) == 7
        with pytest.raises(UserError, match="count: too high"):
            side.call("refuse")
        with pytest.raises(RuntimeError, match=r"(?s)one over nothing.*break_down"):
            side.call("break_down")
        assert side.call("add", 1) == 8
        assert side.call("variable", "A_SIDE_HAS") == "this"
    assert "A_SIDE_HAS" not in os.environ
    out, err = capfd.readouterr()
    assert out == "" and "a side prints" in err


def test_bad_input_is_known_before_the_first_call() -> None:
    with pytest.raises(UserError, match="at least 0"), Side({}, Counter, -1):
        pytest.fail("a side that could not be built was entered")


def test_a_side_that_dies_is_reported_with_its_status() -> None:
    with Side({}, Counter, 0) as side, pytest.raises(RuntimeError, match="status 7"):
        side.call("die")
