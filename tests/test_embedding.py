"""The token before: what the shift adds, and which row a pair of tokens looks up."""

import dataclasses

import pytest
import torch

from tests.conftest import RECIPE, SHAPE
from x1_pretrain.embedding import Embedding, shifted

V, T = 50, 16


def embedding(**recipe):
    net = Embedding(SHAPE, dataclasses.replace(RECIPE, **recipe), V, T)
    generator = torch.Generator().manual_seed(0)
    for weight in net.parameters():
        torch.nn.init.normal_(weight, generator=generator)
    return net


@pytest.mark.parametrize("first", [0, 7])
def test_shifted_is_what_stands_before(first):
    assert shifted(torch.tensor([[1, 2, 3], [4, 5, 6]]), first).tolist() == [[first, 1, 2], [first, 4, 5]]
    x_BTD = torch.randn(2, 5, 3)
    assert torch.equal(shifted(x_BTD)[:, 1:], x_BTD[:, :-1]) and not shifted(x_BTD)[:, 0].any()


def test_the_token_shift_adds_the_embedding_before_times_a_weight_a_channel():
    net, x = embedding(token_shift=True), torch.tensor([[3, 9, 3]])
    alone = torch.nn.functional.rms_norm(net.token.weight, (SHAPE.d_model,))
    expected = torch.stack(
        [alone[3], alone[9] + net.token_shift * alone[3], alone[3] + net.token_shift * alone[9]]
    )
    torch.testing.assert_close(net(x)[0], expected)


def test_a_bigram_is_its_two_tokens_in_their_order_and_nothing_else():
    net = embedding(bigram_rows=1009)
    rows = []
    net.bigram.register_forward_hook(lambda module, inputs, output: rows.append(inputs[0]))
    net(torch.tensor([[1, 2, 1, 2, 2], [4, 1, 2, 4, 1]]))
    first, second = rows[0].tolist()
    assert first[1] == first[3] == second[2], "the same pair, wherever it stands"
    assert len({first[1], first[2], first[4], second[1]}) == 4, "1 2, 2 1, 2 2 and 4 1 are four pairs"
    assert first[0] != second[0], "at the beginning there is no token before, but still a token"


def test_pairs_are_spread_over_the_rows():
    """As random ones would be: with as many pairs as rows, 1 - 1/e = 0.63 of the rows have one."""
    rows, seen = 50 * 50 + 1, set()
    net = embedding(bigram_rows=rows)
    net.bigram.register_forward_hook(
        lambda module, inputs, output: seen.update(inputs[0][:, 1:].flatten().tolist())
    )
    for before in range(V):
        net(torch.tensor([[before, here] for here in range(V)]))
    assert len(seen) > 0.6 * V * V
