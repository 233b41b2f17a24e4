"""The loss curve: read strictly, drawn the same every time."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.report.figures import read_curve, running_mean, write_loss_curve

HEADER = "step,tokens,lr,train_loss_nats,val_loss_nats,grad_norm\n"


def write_curve(path, steps=40, evaluated=(20, 40)):
    rows = [
        f"{k},{k * 4096},{0.02},{3 + 4 / k},{3 + 4 / k if k in evaluated else ''},0.5\n"
        for k in range(1, steps + 1)
    ]
    path.write_text(HEADER + "".join(rows))
    return path


def test_reads_columns_and_leaves_unevaluated_steps_nan(tmp_path):
    curve = read_curve(write_curve(tmp_path / "curve.csv"))
    assert curve.tokens[-1] == 40 * 4096
    assert np.flatnonzero(~np.isnan(curve.val_loss_nats)).tolist() == [19, 39]


def test_same_bytes_twice_and_a_png_of_the_expected_width(tmp_path):
    curve = write_curve(tmp_path / "curve.csv")
    for name in ("a.png", "b.png"):
        write_loss_curve(curve, tmp_path / name, "X1")
    content = (tmp_path / "a.png").read_bytes()
    assert content == (tmp_path / "b.png").read_bytes()
    assert content.startswith(b"\x89PNG") and b"Software" not in content
    assert struct.unpack(">I", content[16:20]) == (8 * 130,)


@pytest.mark.parametrize("steps, evaluated", [(1, ()), (1, (1,)), (3, (3,))])
def test_shortest_curves_can_be_drawn(tmp_path, steps, evaluated):
    write_loss_curve(write_curve(tmp_path / "c.csv", steps, evaluated), tmp_path / "c.png", "X1")
    assert (tmp_path / "c.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "text, named",
    [
        ("", "columns"),
        ("step,tokens\n1,2\n", "columns"),
        (HEADER, "no rows"),
        (HEADER + "1,4096,0.02,high,,0.5\n", "line 2, train_loss_nats is 'high'"),
        (HEADER + "1,4096,0.02,3.0\n", "line 2, val_loss_nats"),
    ],
)
def test_malformed_curve_is_named_and_nothing_written(tmp_path, text, named):
    (tmp_path / "curve.csv").write_text(text)
    with pytest.raises(UserError, match=named):
        write_loss_curve(tmp_path / "curve.csv", tmp_path / "out.png", "X1")
    assert not (tmp_path / "out.png").exists()


def test_missing_curve_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_curve(tmp_path / "curve.csv")


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 70))
def test_running_mean_is_the_mean_of_the_window(values, width):
    smooth = running_mean(np.array(values), width)
    half = width // 2
    for k, mean in enumerate(smooth):
        window = values[max(0, k - half) : k + half + 1]
        assert mean == pytest.approx(math.fsum(window) / len(window), abs=1e-6)
