"""muP with AdamW: activations keep their size as the width grows, and the best lr stays where it is."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import RECIPE, TRAIN
from x1_pretrain.model import GPT
from x1_pretrain.optim import build_optimizers, set_lr
from x1_pretrain.shape import ModelShape

V, T, B = 64, 32, 8
BASE_WIDTH, HEAD_SIZE = 32, 16
WIDTHS = (32, 64, 128, 256)
EMBEDDING_LR = 0.02

with_and_without = pytest.mark.parametrize("mup", [True, False], ids=["mup", "without"])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def walks(n: int) -> Tensor:
    """[n, T + 1] tokens, each followed by one of four that its predecessor decides: log 4 nats at best."""
    generator = torch.Generator().manual_seed(0)
    following_V4 = torch.randint(0, V, (V, 4), generator=generator)
    tokens = [torch.randint(0, V, (n,), generator=generator)]
    for choice in torch.randint(0, 4, (T, n), generator=generator):
        tokens.append(following_V4[tokens[-1], choice])
    return torch.stack(tokens, dim=1)


def training(width: int, mup: bool, lr: float, batches: list[Tensor], **switches) -> Iterator[GPT]:
    """The model before each step, and after the last; lr falls linearly to nothing."""
    recipe = dataclasses.replace(RECIPE, optimizer="adamw", mup=mup, **switches)
    train = dataclasses.replace(TRAIN, adamw_lr=lr, embedding_lr=EMBEDDING_LR, base_width=BASE_WIDTH)
    shape = ModelShape(2, width, width // HEAD_SIZE, width // HEAD_SIZE, 1e9)
    model = GPT(shape, recipe, V, T, base_width=BASE_WIDTH).initialise(0)
    optimizers = build_optimizers(model, train, recipe)
    for step, batch in enumerate(batches):
        yield model
        set_lr(optimizers, 1 - step / len(batches))
        model.loss(batch[:, :-1], batch[:, 1:]).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    yield model


def movement(width: int, mup: bool, **switches) -> dict[tuple[str, int], float]:
    """RMS of what changed since the start in every layer's output, after 1 to 5 steps on one batch."""
    batch, latest, start, found = walks(B), {}, {}, {}

    def keep(name):
        def hook(module, inputs, output):
            latest[name] = output[0] if isinstance(output, tuple) else output  # attention: and its values

        return hook

    for step, model in enumerate(training(width, mup, 0.01, [batch] * 5, **switches)):
        if step == 0:
            model.head.register_forward_hook(keep("logits"))
            for i, block in enumerate(model.blocks):
                block.attention.register_forward_hook(keep(f"attention {i}"))
                block.mlp.register_forward_hook(keep(f"mlp {i}"))
        with torch.no_grad():
            model(batch[:, :-1])
        start = start or dict(latest)
        if step > 0:
            for name, output in latest.items():
                found[name, step] = (output - start[name]).square().mean().sqrt().item()
    return found


def exponents(mup: bool, **switches) -> dict[tuple[str, int], float]:
    """The power of the width with which each movement grows."""
    moved = [movement(width, mup, **switches) for width in WIDTHS]
    return {
        key: np.polyfit(np.log(WIDTHS), np.log([m[key] for m in moved]), 1)[0].item()
        for key in moved[0]
        if all(m[key] > 0 for m in moved)
    }


@pytest.mark.parametrize("switches", [{"zero_init": False}, {"zero_init": False, "tied_head": True}, {}])
def test_layers_move_as_much_at_every_width(switches):
    """The coordinate check (Yang et al. 2022, figure 5).

    What moves has a part that goes with 1 / width beside the one that stays, so that at these widths some
    movements fall a little; a readout scaled down twice would fall with exponent -1.
    """
    with_mup, without = exponents(True, **switches), exponents(False, **switches)
    assert max(with_mup.values()) < 0.1 and min(with_mup.values()) > -0.45, with_mup
    assert without["mlp 0", 5] > 0.6 and without["mlp 1", 5] > 0.3 and without["logits", 5] > 0.2, without


def best_lr(width: int, mup: bool) -> float:
    """Of a grid in steps of the widths' ratio, the lr with the lowest loss on walks not trained on."""
    *batches, held_out = walks(33 * 8).split(8)
    losses = {}
    for lr in (2**-8, 2**-6, 2**-4, 2**-2):
        *_, model = training(width, mup, lr, batches)
        with torch.no_grad():
            losses[lr] = model.loss(held_out[:, :-1], held_out[:, 1:]).item()
    return min(losses, key=losses.get)


@with_and_without
def test_the_best_lr_transfers_to_four_times_the_width(mup):
    narrow, wide = best_lr(32, mup), best_lr(128, mup)
    assert wide == (narrow if mup else narrow / 4)


@pytest.mark.parametrize("head_size", [16, 64, 128])
def test_attention_logits_of_aligned_heads_are_as_large_for_every_head_size(head_size):
    """With QK-norm q k^T is at most the head size: 1 / sqrt(head size) would let the logits grow with it."""
    shape = ModelShape(1, 2 * head_size, 2, 2, 1e9)
    recipe = dataclasses.replace(RECIPE, zero_init=False)
    plain, mup = (GPT(shape, dataclasses.replace(recipe, mup=m), V, T).initialise(0) for m in (False, True))
    tokens = walks(1)[:, :-1]
    with torch.no_grad():
        same = torch.allclose(plain(tokens), mup(tokens))
    assert same == (head_size == 64)
    assert mup.blocks[0].attention.scale * head_size == 8.0
