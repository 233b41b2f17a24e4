"""Cross-entropy in chunks: the loss and gradients of the plain one, and a z-loss that only pulls."""

import pytest
import torch
import torch.nn.functional as F

from x1_pretrain.cross_entropy import linear_cross_entropy

N, D, V = 37, 8, 50
WHOLE = 4 * V * N
CHUNK = 4 * V * 10  # ten tokens at a time: four chunks, the last one smaller

chunks = pytest.mark.parametrize("chunk_bytes", [WHOLE, CHUNK, 1])
reductions = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
options = pytest.mark.parametrize("softcap, z_loss", [(None, None), (3.0, None), (None, 0.1), (3.0, 0.1)])


def inputs():
    generator = torch.Generator().manual_seed(0)
    x_ND = 2 * torch.randn(N, D, generator=generator)
    weight_VD = torch.randn(V, D, generator=generator)
    targets_N = torch.randint(0, V, (N,), generator=generator)
    return x_ND.requires_grad_(), weight_VD.requires_grad_(), targets_N


def reference(x, weight, targets, reduction, softcap, z_loss):
    """(value, what the gradient is of), in fp64 by the definition."""
    logits = x.double() @ weight.double().T
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    losses = -logits.log_softmax(-1)[torch.arange(N), targets]
    z = (z_loss or 0.0) * logits.exp().sum(-1).log() ** 2
    reduce = {"mean": torch.mean, "sum": torch.sum, "none": lambda x: x}[reduction]
    return reduce(losses), reduce(losses + z)


def assert_close(found, expected):
    """To 1e-6 of the largest value: fp32 rounds each sum of many terms."""
    atol = 1e-6 * expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=atol)


@chunks
@reductions
@options
def test_loss_and_gradients_are_those_of_the_definition(chunk_bytes, reduction, softcap, z_loss):
    x, weight, targets = inputs()
    loss = linear_cross_entropy(x, weight, targets, reduction, softcap, z_loss, chunk_bytes)
    value, pulling = reference(x, weight, targets, reduction, softcap, z_loss)
    assert_close(loss, value)
    weights = torch.linspace(-1, 2, N) if reduction == "none" else torch.tensor(0.3)
    found = torch.autograd.grad(loss, (x, weight), weights)
    expected = torch.autograd.grad(pulling, (x, weight), weights.double())
    for gradient, right in zip(found, expected, strict=True):
        assert_close(gradient, right)


@chunks
@reductions
def test_it_is_torchs_cross_entropy(chunk_bytes, reduction):
    x, weight, targets = inputs()
    found = linear_cross_entropy(x, weight, targets, reduction, chunk_bytes=chunk_bytes)
    expected = F.cross_entropy(x @ weight.T, targets, reduction=reduction)
    assert_close(found, expected)


@chunks
def test_one_gradient_scale_for_all_reductions(chunk_bytes):
    """mean * N and sum pull alike, z-loss included: a micro-batch must not change its weight."""
    gradients = []
    for reduction in ("mean", "sum"):
        x, weight, targets = inputs()
        loss = linear_cross_entropy(x, weight, targets, reduction, None, 0.1, chunk_bytes)
        (loss * N if reduction == "mean" else loss).backward()
        gradients.append(weight.grad)
    torch.testing.assert_close(*gradients)


def test_no_tensor_has_all_the_logits(monkeypatch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self.numel = max(self.numel, tensor.numel())
            return result

    largest = {}
    for chunk_bytes in (WHOLE, CHUNK):
        x, weight, targets = inputs()
        with Largest() as seen:
            linear_cross_entropy(x, weight, targets, "sum", 3.0, 0.1, chunk_bytes).backward()
        largest[chunk_bytes] = seen.numel
    assert largest == {WHOLE: N * V, CHUNK: max(10 * V, V * D, N * D)}


def test_under_autocast_the_loss_is_fp32_and_close():
    x, weight, targets = inputs()
    exact = linear_cross_entropy(x, weight, targets)
    with torch.autocast("cpu", torch.bfloat16):
        plain, chunked = (linear_cross_entropy(x, weight, targets, chunk_bytes=c) for c in (WHOLE, CHUNK))
    assert plain.dtype == chunked.dtype == torch.float32
    torch.testing.assert_close(chunked, plain, rtol=1e-5, atol=0)
    torch.testing.assert_close(chunked, exact, rtol=0.02, atol=0)
    gradients = [torch.autograd.grad(loss, (x, weight)) for loss in (exact, chunked)]
    for found, expected in zip(*gradients, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0, atol=0.03 * expected.abs().max().item())


@chunks
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_bf16_model_has_an_fp32_loss(chunk_bytes, reduction):
    x, weight, targets = (tensor.detach() for tensor in inputs())
    x, weight = x.bfloat16(), weight.bfloat16()
    loss = linear_cross_entropy(x, weight, targets, reduction, chunk_bytes=chunk_bytes)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, F.cross_entropy((x @ weight.T).float(), targets, reduction=reduction))


@pytest.mark.slow
def test_compiled_it_gives_the_same():
    arguments = (*inputs(), "mean", 3.0, 0.1, 4 * V * 20)
    compiled = torch.compile(linear_cross_entropy, dynamic=False, fullgraph=True)
    eager, fast = linear_cross_entropy(*arguments), compiled(*arguments)
    torch.testing.assert_close(fast, eager)
    torch.testing.assert_close(*(torch.autograd.grad(loss, arguments[:2]) for loss in (fast, eager)))
