"""Switches given on a benchmark's command line: checked like those of params.yaml."""

import pytest
from settings import setting, with_recipe

from x1_pretrain.errors import UserError
from x1_pretrain.study import study_from


def test_a_switch_is_turned_and_nothing_else():
    study = study_from("tiny")
    turned = with_recipe(study, [setting("recipe.bigram_rows=512"), setting("recipe.token_shift=false")])
    assert (turned.choice.recipe.bigram_rows, turned.choice.recipe.token_shift) == (512, False)
    assert turned.profile == study.profile and turned.choice.seed == study.choice.seed
    assert with_recipe(study, []) == study


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("train.muon_lr=0.1", "train.muon_lr"),
        ("recipe.bigram=1", "bigram_rows"),
        ("recipe.bigram_rows=-1", "-1"),
        ("recipe.bigram_rows", "KEY=VALUE"),
    ],
)
def test_what_is_no_switch_is_refused_by_name(text, named):
    with pytest.raises(UserError, match=named):
        with_recipe(study_from("tiny"), [setting(text)])
