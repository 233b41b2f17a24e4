"""One attention, three libraries: they see the same keys, for every window and grouping of heads."""

import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from x1_pretrain.attention import Window, attend, available
from x1_pretrain.errors import UserError

T = 24

windows = pytest.mark.parametrize("window", [None, 1, 5, 100])
heads = pytest.mark.parametrize("n_head, n_kv_head", [(4, 4), (4, 2), (3, 1)])


def heads_of(n_head: int, n_kv_head: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, T, n, 8, generator=generator) for n in (n_head, n_kv_head, n_kv_head)]


def reference(q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float | None = None) -> Tensor:
    """By the definition, query by query."""
    k, v = (x.repeat_interleave(q.size(2) // x.size(2), dim=2) for x in (k, v))
    rows = []
    for i in range(q.size(1)):
        first = 0 if window is None else max(0, i - window + 1)
        scores = torch.einsum("bhs,bjhs->bhj", q[:, i], k[:, first : i + 1])
        shares = (scores * (q.size(3) ** -0.5 if scale is None else scale)).softmax(-1)
        rows.append(torch.einsum("bhj,bjhs->bhs", shares, v[:, first : i + 1]))
    return torch.stack(rows, dim=1)


def mask_of(library: str, window: int | None, length: int = T):
    moving = Window(T, movable=True)
    moving.set(window)
    return moving.mask(library, length)


@windows
@heads
def test_sdpa_is_the_definition_forward_and_backward(n_head, n_kv_head, window):
    q, k, v = (x.requires_grad_() for x in heads_of(n_head, n_kv_head))
    y, expected = attend(q, k, v, "sdpa", mask_of("sdpa", window)), reference(q, k, v, window)
    torch.testing.assert_close(y, expected)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    gradient, expected = (torch.autograd.grad(out, (q, k, v), weights) for out in (y, expected))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@windows
@heads
def test_flex_is_the_definition(n_head, n_kv_head, window):
    """Forward only: on a CPU torch has no backward of FlexAttention."""
    q, k, v = heads_of(n_head, n_kv_head)
    torch.testing.assert_close(attend(q, k, v, "flex", mask_of("flex", window)), reference(q, k, v, window))


@heads
def test_without_a_window_no_mask_is_built(n_head, n_kv_head):
    q, k, v = heads_of(n_head, n_kv_head)
    fixed = Window(T, movable=False)
    assert fixed.mask("sdpa", T) is None and fixed.mask("flash", T) is None
    torch.testing.assert_close(attend(q, k, v, "sdpa"), reference(q, k, v, None))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("library", ["sdpa", "flex"])
def test_scale_and_a_shorter_sequence(library):
    q, k, v = (x[:, :9] for x in heads_of(4, 2))
    y = attend(q, k, v, library, mask_of(library, 5, length=9), scale=0.7)
    torch.testing.assert_close(y, reference(q, k, v, 5, scale=0.7))


def test_keys_of_another_precision_follow_the_values():
    """QK-norm may give fp32 where autocast gives bf16 values; libraries want one dtype."""
    q, k, v = heads_of(4, 2)
    assert attend(q, k, v.bfloat16(), "sdpa").dtype == torch.bfloat16


@pytest.fixture
def flash_attn(monkeypatch):
    """A flash-attn by its documentation: [B, T, H, S], `window_size` counts the keys on both sides."""

    def flash_attn_func(q, k, v, softmax_scale, causal, window_size, deterministic):
        i, j = torch.arange(q.size(1))[:, None], torch.arange(k.size(1))
        left, right = window_size
        seen = (j <= i) if causal else torch.ones(q.size(1), k.size(1), dtype=torch.bool)
        seen = seen & (j >= i - left) if left >= 0 else seen
        seen = seen & (j <= i + right) if right >= 0 else seen
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, seen, scale=softmax_scale, enable_gqa=True)
        return y.transpose(1, 2)

    package = ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)


@windows
@heads
def test_flash_is_asked_for_the_same_keys(flash_attn, n_head, n_kv_head, window):
    q, k, v = (x.bfloat16() for x in heads_of(n_head, n_kv_head))
    for scale in (None, 0.7):
        y = attend(q, k, v, "flash", mask_of("flash", window), scale)
        expected = attend(q, k, v, "sdpa", mask_of("sdpa", window), scale)
        torch.testing.assert_close(y, expected, atol=0.02, rtol=0)


def test_flash_refuses_fp32(flash_attn):
    with pytest.raises(UserError, match=r"device.attention: flash does not compute in fp32; .* bf16"):
        attend(*heads_of(4, 4), "flash")


def test_what_is_available_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "flash_attn", None)  # as if it were not installed
    assert available("sdpa") is None
    assert "flash-attn" in available("flash") and "not installed" in available("flash")
    assert "GPU" in available("flex")


@pytest.mark.parametrize("movable, window, right", [(True, 0, "at least 1"), (False, 4, "None without")])
def test_an_impossible_window_is_refused(movable, window, right):
    with pytest.raises(ValueError, match=f"window: {window} must be {right}"):
        Window(T, movable).set(window)
