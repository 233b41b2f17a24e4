"""nanoGPT's side, on a stand-in for its model.py: our batches in order, its schedule, exactly its steps."""

from pathlib import Path

import pytest
import torch
from contest.nanogpt import lr_scale
from contest.peer_side import WARM_STEPS, PeerSide
from contest.terms import Data, Terms

MODEL = """
from dataclasses import dataclass
import torch
from torch.nn import functional as F

@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.seen, self.lrs, self.asked = config, [], [], []
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)

    def forward(self, idx, targets=None):
        self.seen.append(idx)
        logits = self.table(idx)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        self.asked.append((weight_decay, learning_rate, betas, device_type))
        optimizer = torch.optim.SGD(self.parameters(), lr=learning_rate)
        optimizer.register_step_pre_hook(lambda o, *_: self.lrs.append(o.param_groups[0]["lr"]))
        return optimizer
"""


@pytest.fixture
def side(tmp_path: Path, small_terms: Terms) -> PeerSide:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text("weight_decay = 0.1\nbeta1 = 0.9\nbeta2 = 0.95\ngrad_clip = 1.0\n")
    return PeerSide("nanogpt", tmp_path, small_terms)


def test_it_is_built_for_our_shape_and_vocabulary(side: PeerSide) -> None:
    config = side.peer.model.config
    assert (config.n_layer, config.n_head, config.n_embd) == (1, 2, 16)
    assert (config.block_size, config.vocab_size, config.bias) == (32, 257, False)


def test_it_reads_our_batches_in_order_and_takes_exactly_the_steps(
    side: PeerSide, small_terms: Terms
) -> None:
    side.run(3e-3, 6)
    model, loader = side.peer.model, Data(small_terms).loader
    for step in range(6):
        assert torch.equal(model.seen[step], torch.from_numpy(loader.batch(step))[:, :-1])
    assert model.lrs == pytest.approx([3e-3 * lr_scale(step, 6) for step in range(6)])
    assert model.asked == [(0.1, 3e-3, (0.9, 0.95), "cpu")]


def test_the_loss_is_the_mean_over_the_validation_windows(side: PeerSide, small_terms: Terms) -> None:
    run = side.run(1e-2, 2)
    windows = Data(small_terms).windows
    assert windows.numel() == 8 * 33
    with torch.no_grad():
        _, expected = side.peer.model(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
    assert run.loss_nats == pytest.approx(expected.item(), rel=1e-5)


def test_every_lr_starts_from_the_same_weights(side: PeerSide) -> None:
    first = side.run(0.5, 5).loss_nats
    assert side.run(0.01, 5).loss_nats != first
    side.time_steps(0.5, 3)
    assert side.run(0.5, 5).loss_nats == first


def test_a_timed_block_has_its_steps_and_the_warm_ones_before(side: PeerSide) -> None:
    assert side.time_steps(0.5, 4) > 0
    assert len(side.peer.model.lrs) == WARM_STEPS + 4


def test_the_schedule_is_warm_up_and_a_cosine_to_a_tenth() -> None:
    assert lr_scale(0, 800) == pytest.approx(1 / 101)
    assert lr_scale(99, 800) == pytest.approx(100 / 101)
    assert lr_scale(100, 800) == pytest.approx(1.0)
    assert lr_scale(450, 800) == pytest.approx(0.55)
    assert lr_scale(799, 800) == pytest.approx(0.1, abs=1e-4)
