"""The planner against public runs, its own limits, and its generated document."""

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.economics import planner_doc
from x1_pretrain.economics.flops import training_flops_per_token
from x1_pretrain.economics.plan import main, plan_lines
from x1_pretrain.economics.planner import plan_of, shape_for
from x1_pretrain.economics.prices import PRICES
from x1_pretrain.economics.public_runs import PUBLIC_RUNS, TOLERANCE
from x1_pretrain.economics.splits import (
    Split,
    Transformer,
    activation_bytes,
    bubble,
    communication_of,
    memory_of,
)

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ["--params", "7e9", "--tokens", "2e12", "--gpu", "h100", "--count", "1024"]


@pytest.mark.parametrize("run", PUBLIC_RUNS, ids=lambda run: run.name)
def test_public_runs_agree_within_a_tenth_or_say_why(run):
    if run.error is None:
        assert run.mfu_source == "none published" and 0.1 < run.implied_mfu < 0.6
    elif run.disagrees is None:
        assert abs(run.error) <= TOLERANCE
    else:
        assert abs(run.error) > TOLERANCE, "it agrees now: the note is out of date"
    assert run.hours_source and run.sizes_source


def test_the_table_has_every_family_the_course_names():
    names = " ".join(run.name for run in PUBLIC_RUNS)
    for family in (
        "GPT-3",
        "OPT",
        "BLOOM",
        "LLaMA",
        "Llama 2",
        "Llama 3",
        "PaLM",
        "MT-NLG",
        "Pythia",
        "OLMo 2",
    ):
        assert family in names
    assert sum(run.error is not None and run.disagrees is None for run in PUBLIC_RUNS) >= 7


def test_the_document_is_the_one_that_the_code_makes():
    """`python -m x1_pretrain.economics.planner_doc` writes it again."""
    assert (ROOT / planner_doc.PATH).read_text(encoding="utf-8") == planner_doc.document()


def test_flops_are_those_of_the_trainers_own_count():
    """flops.py counts matmuls one by one; the planner's 6 P + 12 L d T has them all in P."""
    L, d, V, T = 24, 1024, 50257, 2048
    model = Transformer(12 * L * d * d + V * d, L, d, V, T)
    assert model.flops_per_token == training_flops_per_token(L, d, 8, 8, V, T)


@given(st.floats(1e6, 1e12))
def test_a_shape_has_about_the_parameters_asked_for(params):
    shape = shape_for(params, 50257, 2048)
    counted = 12 * shape.n_layer * shape.d_model**2 + 2 * shape.n_vocab * shape.d_model
    if params > 1e9:
        assert counted == pytest.approx(params, rel=0.1)
    assert shape.params == params and shape.d_model % 128 == 0


MODEL = Transformer(7.5e9, 32, 4096, 32000, 2048)


def split(**changes):
    return dataclasses.replace(Split(64, 1, 1, 0, 1, False), **changes)


def test_zero_is_the_papers_table():
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters on 64 ranks, 120, 31.4, 16.6 and 1.9 GB."""
    sizes = []
    for zero in range(4):
        memory = memory_of(MODEL, split(zero=zero))
        sizes.append((memory.total - memory.activations) / 1e9)
    assert sizes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


def test_activations_are_the_papers_formula():
    """Korthikanti et al. 2022: 34 s b h a layer without the scores, 2 s b h where all is recomputed."""
    bare = dataclasses.replace(MODEL, n_vocab=0)
    layer = 34 * 2048 * 4096
    assert activation_bytes(bare, split()) == 32 * layer
    assert activation_bytes(bare, split(recompute=True)) == 32 * 2 * 2048 * 4096 + layer
    assert activation_bytes(bare, split(tensor=8)) == 32 * 13 * 2048 * 4096
    assert activation_bytes(bare, split(micro_batch=4)) == 4 * 32 * layer


@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6))
def test_the_bubble_is_the_papers_and_one_stage_has_none(pipeline, micro, batch):
    cut = split(data=1, pipeline=2**pipeline, micro_batch=2**micro)
    m, p = 2 ** (micro + batch) // 2**micro, 2**pipeline
    assert bubble(cut, 2 ** (micro + batch)) == pytest.approx((p - 1) / (m + p - 1))


def test_what_is_sent():
    one = communication_of(MODEL, split(data=1), 64)
    assert (one.data, one.tensor, one.pipeline) == (0, 0, 0)
    plain, sharded = communication_of(MODEL, split(), 64), communication_of(MODEL, split(zero=3), 64)
    assert plain.data == pytest.approx(2 * 63 / 64 * 2 * 7.5e9)
    assert sharded.data == pytest.approx(1.5 * plain.data)  # Rajbhandari et al. 2020, section 7.2
    block = 2 * 2048 * 4096
    tensor = communication_of(MODEL, split(data=8, tensor=8), 64)
    assert tensor.tensor == pytest.approx(4 * 32 * 2 * 7 / 8 * block * 8)
    pipeline = communication_of(MODEL, split(data=16, pipeline=4), 64)
    assert pipeline.pipeline == 2 * block * 4


def test_a_plan_adds_up():
    plan = plan_of(7e9, 2e12, "h100", 1024)
    assert plan.gpu_hours == pytest.approx(plan.flops / (989e12 * 0.41) / 3600)
    assert plan.days == pytest.approx(plan.gpu_hours / 1024 / 24)
    assert plan.energy_kwh == pytest.approx(plan.gpu_hours * 0.7 * 1.1)
    usd, source = plan.usd(spot=False)
    assert usd == pytest.approx(plan.gpu_hours * 3.78) and "2026-05-07" in source
    assert plan.usd(spot=True) is None


def test_splits_fit_where_they_say_and_the_cheapest_is_the_fastest_that_fits():
    plan = plan_of(7e9, 2e12, "h100", 64)
    options = plan.options()
    assert all(option.fits == (option.memory.total <= 0.9 * 80e9) for option in options)
    assert all(option.split.gpus == 64 for option in options)
    fitting = [option.step_s for option in options if option.fits]
    assert options[0].fits and options[0].step_s == min(fitting)
    assert not any(o.fits for o in options if o.split.zero == 0 and o.split.tensor * o.split.pipeline == 1)


def test_a_model_too_large_for_its_cards_fits_nowhere():
    lines = plan_lines(plan_of(405e9, 1e12, "rtx 4090", 8))
    assert lines[-1].endswith("none fits: more cards, larger ones, or a smaller model")


@pytest.mark.parametrize("count", [1, 7, 24, 1000])
def test_any_number_of_cards_has_a_split(count):
    assert plan_of(124e6, 1e9, "a100-80gb", count).options()


def test_the_command_prints_everything(capsys):
    main([*COMMAND, "--storage-usd-per-gb-month", "0.07", "--egress-usd-per-gb", "0.015"])
    printed = capsys.readouterr().out
    for word in ("FLOP", "MFU", "GPU-hours", "days", "on demand", "spot", "kWh", "storage", "egress"):
        assert word in printed
    for word in ("ZeRO-1", "ZeRO-2", "ZeRO-3", "tensor", "pipeline", "bubble", "recomputed", "cheapest"):
        assert word in printed
    assert "1 $ at 0.015 $/GB" in printed


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"--gpu": "a9000"}, "RTX 5090"),
        ({"--tokens": "nan"}, "--tokens"),
        ({"--tokens": "-1"}, "--tokens"),
        ({"--params": "inf"}, "--params"),
        ({"--params": "seven"}, "7e9"),
        ({"--count": "0"}, "--count"),
        ({"--mfu": "1.5"}, "--mfu"),
        ({"--seq-len": "0"}, "--seq-len"),
        ({"--egress-usd-per-gb": "-1"}, "price"),
    ],
)
def test_bad_input_is_one_sentence(capsys, changes, named):
    arguments = dict(zip(COMMAND[::2], COMMAND[1::2], strict=True)) | changes
    with pytest.raises(SystemExit) as stopped:
        main([word for pair in arguments.items() for word in pair])
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and named in message and message.count("\n") == 1


def test_every_price_has_a_card_a_source_and_a_date():
    from datetime import date

    from x1_pretrain.economics.hardware import find_gpu

    for price in PRICES:
        assert find_gpu(price.gpu).gpu is not None and price.source and math.isfinite(price.usd_per_hour)
        date.fromisoformat(price.date)
