"""nanochat's side, on a stand-in for its package: its rules for lr, momentum and weight decay."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contest.nanochat import Schedule
from contest.peer_side import PeerSide
from contest.terms import Terms

GPT = """
from dataclasses import dataclass
import torch
from torch.nn import functional as F

@dataclass
class GPTConfig:
    sequence_len: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    n_embd: int
    window_pattern: str

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.asked, self.groups = config, [], []
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)

    def init_weights(self):
        torch.nn.init.normal_(self.table.weight)

    def num_scaling_params(self):
        return {"transformer_matrices": self.config.n_layer * self.config.n_embd ** 2, "lm_head": 64}

    def setup_optimizer(self, **options):
        self.asked.append(options)
        group = dict(params=list(self.parameters()), lr=options["matrix_lr"], kind="muon")
        optimizer = torch.optim.SGD([group])
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        optimizer.register_step_pre_hook(lambda o, *_: self.groups.append(dict(o.param_groups[0])))
        return optimizer

    def forward(self, idx, targets):
        return F.cross_entropy(self.table(idx).flatten(0, 1), targets.view(-1))
"""
DEFAULTS = {
    "embedding-lr": 0.3,
    "unembedding-lr": 0.008,
    "matrix-lr": 0.02,
    "scalar-lr": 0.5,
    "weight-decay": 0.28,
    "warmup-steps": 40,
    "warmdown-ratio": 0.65,
    "final-lr-frac": 0.05,
    "target-param-data-ratio": 12,
}
FULL = Schedule(n_steps=235, warmup=40, warmdown=153, final_lr=0.05)


@pytest.fixture
def side(tmp_path: Path, small_terms: Terms) -> Iterator[PeerSide]:
    for folder in ("nanochat", "scripts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "nanochat/gpt.py").write_text(GPT)
    (tmp_path / "nanochat/optim.py").write_text("")
    lines = [f'parser.add_argument("--{name}", default={value})' for name, value in DEFAULTS.items()]
    (tmp_path / "scripts/base_train.py").write_text("\n".join(lines))
    yield PeerSide("nanochat", tmp_path, small_terms)
    for name in [name for name in sys.modules if name.split(".")[0] == "nanochat"]:
        del sys.modules[name]
    gc.unfreeze()
    gc.enable()


def test_all_lr_follow_its_rule_for_the_batch_times_the_multiplier(side: PeerSide) -> None:
    side.run(6.0, 4)
    scale = 6.0 * (4 * 32 / 2**19) ** 0.5
    (asked,) = side.peer.model.asked
    for name, default in (("unembedding", 0.008), ("embedding", 0.3), ("scalar", 0.5), ("matrix", 0.02)):
        assert asked[f"{name}_lr"] == pytest.approx(default * scale)


def test_weight_decay_follows_its_rule_for_batch_and_size_whatever_the_multiplier(side: PeerSide) -> None:
    side.run(6.0, 4)
    side.run(1.0, 4)
    sizes = (12 * 768**2 + 64) / (1 * 16**2 + 64)
    expected = 0.28 * (4 * 32 / 2**19) ** 0.5 * sizes
    assert [a["weight_decay"] for a in side.peer.model.asked] == pytest.approx([expected] * 2)


def test_each_step_sets_lr_momentum_and_decay(side: PeerSide) -> None:
    side.run(1.0, 8)
    model = side.peer.model
    schedule, asked = Schedule(8, 2, 5, 0.05), model.asked[0]
    assert len(model.groups) == 8
    for step, group in enumerate(model.groups):
        assert group["lr"] == pytest.approx(asked["matrix_lr"] * schedule.lr_scale(step))
        assert group["momentum"] == pytest.approx(schedule.momentum(step))
        assert group["weight_decay"] == pytest.approx(asked["weight_decay"] * schedule.decay_scale(step))


def test_lr_warms_up_stays_and_warms_down() -> None:
    assert [FULL.lr_scale(step) for step in (0, 39, 82)] == pytest.approx([1 / 40, 1.0, 1.0])
    assert FULL.lr_scale(83) == pytest.approx(152 / 153 + 0.05 / 153)
    assert FULL.lr_scale(234) == pytest.approx(1 / 153 + 0.05 * 152 / 153)


def test_momentum_ramps_up_for_400_steps_then_down_with_the_lr() -> None:
    assert FULL.momentum(200) == pytest.approx(0.91)
    long = Schedule(n_steps=2000, warmup=40, warmdown=1300, final_lr=0.05)
    assert [long.momentum(step) for step in (400, 700, 1350)] == pytest.approx([0.97, 0.97, 0.935])


def test_weight_decay_goes_to_zero() -> None:
    assert FULL.decay_scale(0) == 1.0
    assert FULL.decay_scale(234) == pytest.approx(0.0, abs=1e-4)
