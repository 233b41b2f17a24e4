"""Each program's log is read as it prints it, traps included."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from x1_pretrain.errors import UserError
from x1_pretrain.spikes.logs.formats import open_log
from x1_pretrain.spikes.logs.points import is_field, number
from x1_pretrain.spikes.logs.traps import Corrector, norms_are_scaled

NANOGPT = """number of parameters: 123.59M
step 0: train loss 10.9898, val loss 10.9876
iter 0: loss 10.9901, time 1234.56ms, mfu -100.00%
iter 10: loss nan, time 234.56ms, mfu 17.52%
"""
LLMC = """step    1/19560 | train loss 10.990 | norm 15.3412 | lr 8.57e-07 | (1234 ms | 422000 tok/s)
step    2/19560 | loss 10.876543 (+nanz)| norm 14.2000 (+1.23z)| lr 1.71e-06 | 230 ms | 55.1% bf16 MFU
val loss 10.5
"""
LLMC_MAIN = "s:0 tel:10.9\ns:1 trl:10.8 lr:0.000001 norm:15.34\ns:250 eval:0.25\ns:2 trl:10.7\n"
MODDED = """import os
def step(loss): print("step:1/2 val_loss")
step:0/1480 val_loss:10.8258 train_time:228ms step_avg:nanms
step:945/1480 train_loss:3.4241 train_time:131ms step_avg:140ms
step:946/1480 train_loss:5.0685 train_time:132ms step_avg:140ms
"""
MEGATRON = """[default7]: iteration 31214/115311 | lm loss: 2.198845E+00 | grad norm: 0.242 |
 iteration    31215/  115311 | consumed samples:     47770544 | learning ra
te: 5.279E-05 | global batch size:  2048 | lm lo
ss: 2.220424E+00 | loss scale: 65536.0 | grad norm: 0.947 | number of skipped iterations:   1 |
"""
HF = {
    "best_metric": None,
    "global_step": 30,
    "log_history": [
        {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": 2.5, "step": 10},
        {"epoch": 0.1, "eval_loss": 2.4, "step": 10},
        {"epoch": 0.2, "grad_norm": math.nan, "learning_rate": 4e-05, "loss": 2.25, "step": 20},
        {"epoch": 0.3, "step": 30, "train_loss": 2.3, "train_runtime": 12.0},
    ],
}
MLFLOW = """run_id,key,value,step,timestamp
r1,train_loss,3.5,1,170000
r1,train_loss,3.4,2,170001
r1,val_loss,9.9,2,170001
r1,grad_norm,0.5,1,170000
r1,grad_norm,0.75,2,170001
"""
WANDB = """"Step","calm-frog-1 - train/loss","calm-frog-1 - train/loss__MIN","calm-frog-1 - train/loss__MAX"
"1","3.5","3.5","3.5"
"2","NaN","NaN","NaN"
"3","","",""
"""
WANDB_HISTORY = "_step,train/loss,train/grad_norm,val/loss\n1,3.5,0.5,\n2,,,3.6\n3,3.25,0.25,\n"


@pytest.fixture
def read(tmp_path):
    def of(text: str, name: str = "log.txt", **columns: str):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        log = open_log(path, columns)
        return log.format, [(p.step, p.loss, p.grad_norm) for p in log.points()]

    return of


@pytest.mark.parametrize(
    ("text", "name", "points"),
    [
        (NANOGPT, "nanoGPT", [(0, 10.9901, None), (10, math.nan, None)]),
        (LLMC, "llm.c", [(1, 10.99, 15.3412), (2, 10.876543, 14.2)]),
        (LLMC_MAIN, "llm.c main.log", [(1, 10.8, 15.34), (2, 10.7, None)]),
        (MODDED, "modded-nanogpt", [(945, 3.4241, None), (946, 5.0685, None)]),
        (MEGATRON, "Megatron", [(31214, 2.198845, 0.242), (31215, 2.220424, 0.947)]),
        (json.dumps(HF, indent=2), "trainer_state.json", [(10, 2.5, 1.5), (20, 2.25, math.nan)]),
        (json.dumps(HF), "trainer_state.json", [(10, 2.5, 1.5), (20, 2.25, math.nan)]),
        (MLFLOW, "a table of one metric per row (MLflow)", [(1, 3.5, 0.5), (2, 3.4, 0.75)]),
        (WANDB, "a table (CSV)", [(1, 3.5, None), (2, math.nan, None)]),
        (WANDB_HISTORY, "a table (CSV)", [(1, 3.5, 0.5), (3, 3.25, 0.25)]),
        ('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": "nan"}\n{"st', "JSON, one record per line",
         [(1, 2.5, None), (2, math.nan, None)]),
        ('[{"_step": 1, "train/loss": 2.5}]', "a list of JSON records", [(1, 2.5, None)]),
    ],
)  # fmt: skip
def test_formats(read, text, name, points):
    found = read(text)
    assert found[0] == name
    assert repr(found[1]) == repr(points)


def test_source_code_before_the_log_is_passed_over(read):
    assert read("x = 1\n" * 30_000 + MODDED)[0] == "modded-nanogpt"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("step,accuracy\n1,2\n", "no column is the loss.*--loss.*step, accuracy"),
        ("step,loss_a,train_loss,loss\n1,2,3,4\n", "several columns may be the loss: train_loss, loss"),
        ("a,b\n1,2\n", "no step was found .*columns a, b"),
        ("hello\nworld\n", "no step was found"),
        ('{"model": "x"}\nnot json\n', "line 2: not JSON"),
        ('{\n"model": "x"\n}', "no list log_history"),
        ('{\n"log_history": [{"step": 1, "loss": 2.0}, {"step": ', "cut off"),
    ],
)
def test_bad_logs_are_explained(read, text, message):
    with pytest.raises(UserError, match=message):
        read(text)


def test_a_missing_file_and_a_missing_column_are_named(tmp_path, read):
    with pytest.raises(UserError, match="no such file"):
        open_log(tmp_path / "none.csv")
    with pytest.raises(UserError, match="no column 'x' for the loss"):
        read("step,loss\n1,2\n", loss="x")


def test_a_named_column_is_taken(read):
    text = "step,train_loss_a,train_loss_b\n1,2.5,3.5\n"
    assert read(text, loss="train_loss_b")[1] == [(1, 3.5, None)]


@pytest.mark.parametrize("name", ["val_loss", "eval/loss", "test loss", "validation_loss", "loss__MIN"])
def test_losses_of_evaluations_are_none_of_training(name):
    assert not is_field(name, "loss")


@given(st.one_of(st.text(max_size=12), st.floats(), st.none(), st.booleans()))
def test_any_cell_is_a_number_or_nothing(cell):
    assert number(cell) is None or isinstance(number(cell), float)


def test_fp16_norms_are_divided_by_their_scale_and_stale_ones_left_out(read, tmp_path):
    text = "step,loss,grad_norm,loss_scale\n1,3,12952.562,65536\n2,3,262623.331,65536\n3,3,262623.331,32768\n"
    path = tmp_path / "scaled.csv"
    path.write_text(text + "4,3,0.0,32768\n2,3,9000.5,32768\n")
    points = list(open_log(path).points())
    assert norms_are_scaled(points) and not norms_are_scaled([p._replace(loss_scale=None) for p in points])
    corrector = Corrector(scaled_norms=True)
    norms = [corrector.correct(point).grad_norm for point in points]
    assert norms == pytest.approx([0.1976, 4.0073, None, None, 0.2747], abs=1e-4)
    assert corrector.counts == {"scaled_norm": 3, "stale_norm": 1, "zero_norm": 1, "backwards": 1}
