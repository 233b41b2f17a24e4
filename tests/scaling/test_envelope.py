from pathlib import Path

import numpy as np
import pytest

from x1_pretrain.errors import UserError
from x1_pretrain.scaling.envelope import Curve, envelope, read_curves
from x1_pretrain.scaling.law import Law
from x1_pretrain.scaling.runs import read_runs

LAW = Law(E=1.7, A=400.0, alpha=0.34, B=400.0, beta=0.28)
RUNS = "run_id,model,N,D,val_loss\na,A,1e6,1e9,4\nb,B,4e6,2.5e8,3.9\nc,C,16e6,6e7,4.2\n"


def curves_of(law: Law, sizes, C: float, noise: float = 0.0) -> list[Curve]:
    """Training curves of one budget, a point every 1% of it."""
    rng = np.random.default_rng(0)
    found = []
    for N in sizes:
        D = C / (6 * N) * np.linspace(0.001, 1, 2000)
        found.append(Curve(float(N), D, law.loss(N, D) * np.exp(noise * rng.standard_normal(len(D)))))
    return found


@pytest.mark.parametrize(("sizes", "noise", "off"), [(13, 0.0, 0.03), (6, 0.01, 0.08)])
def test_the_steps_of_the_envelope_follow_the_law(sizes: int, noise: float, off: float):
    steps = envelope(curves_of(LAW, np.geomspace(1e6, 1e9, sizes), 1e19, noise))
    assert steps.refused is None and len(steps.C) >= 2
    a = np.polyfit(np.log(steps.C), np.log(steps.N), 1)[0]
    assert a == pytest.approx(LAW.a, abs=off)
    assert np.array(steps.N) == pytest.approx(LAW.n_opt(np.array(steps.C)), rel=0.4)


def test_too_few_sizes_or_steps_are_refused_with_the_reason():
    assert "2 training curves" in envelope(curves_of(LAW, [1e6, 1e7], 1e17)).refused
    never = envelope(curves_of(LAW, [1e9, 2e9, 4e9], 1e17))  # the smallest leads to the end
    assert "passes to a larger size 0 times" in never.refused
    apart = [Curve(1e6, np.array([1e6, 1e7]), np.array([5.0, 4.0])) for _ in range(2)]
    apart += [Curve(1e8, np.array([1e9, 1e10]), np.array([5.0, 4.0])), Curve(1e7, *np.ones((2, 2)) * 1e4)]
    assert "no range of compute in common" in envelope(apart).refused


def test_curves_are_read_by_the_names_of_the_models(tmp_path: Path):
    (tmp_path / "runs.csv").write_text(RUNS)
    runs = read_runs(tmp_path / "runs.csv")
    for model in "ABC":
        (tmp_path / f"{model}.csv").write_text("tokens,train_loss_nats\n1000,6.9\n2000,\n3000,6.5\n")
    curves = read_curves(tmp_path, runs)
    assert [curve.N for curve in curves] == [1e6, 4e6, 16e6]
    assert curves[0].D.tolist() == [1000, 3000] and curves[0].loss_nats.tolist() == [6.9, 6.5]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"B\.csv: no such file"),
        ("tokens,loss\n1,2\n", r"B\.csv: the column 'train_loss_nats' is missing"),
        ("tokens,train_loss_nats\n1,x\n", r"B\.csv: a value is not a number"),
    ],
)
def test_a_bad_curve_is_named(tmp_path: Path, content: str | None, says: str):
    (tmp_path / "runs.csv").write_text(RUNS)
    for model in "AC":
        (tmp_path / f"{model}.csv").write_text("tokens,train_loss_nats\n1000,6.9\n")
    if content is not None:
        (tmp_path / "B.csv").write_text(content)
    with pytest.raises(UserError, match=says):
        read_curves(tmp_path, read_runs(tmp_path / "runs.csv"))


def test_runs_without_models_have_no_curves(tmp_path: Path, three_runs):
    with pytest.raises(UserError, match=r"runs\.csv the column model"):
        read_curves(tmp_path, three_runs)
