"""Which batches stand out: the bad ones, the less bad beside them, and no sound one."""

import pytest

from x1_pretrain.spikes.cross_evaluation import offending_range


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ({}, None),
        ({5: 5.9, 6: 4.0}, None),
        ({5: 6.1}, (5, 5)),
        ({4: 1.3, 5: 5.8, 6: 7.3, 7: 6.0, 8: 6.4, 9: 5.2, 10: 0.7}, (5, 9)),  # rare tokens, seed 50
        ({3: 4.0, 5: 7.0, 8: 9.0, 10: 5.0}, (5, 8)),  # between two that stand out all, beyond only neighbours
    ],
)
def test_the_range_is_what_stands_out_and_its_neighbours(deltas, expected):
    assert offending_range(deltas) == expected
