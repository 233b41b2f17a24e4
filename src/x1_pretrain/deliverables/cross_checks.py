"""Checks of deliverables against each other: the same number must be the same in every file.

Each check is a function of the parsed files that returns its problems, or None where what it would
look at (a cached checkpoint) is not on this machine. Each file already fits its schema.
"""

from collections.abc import Callable

from x1_pretrain.deliverables import run_checks, study_checks
from x1_pretrain.deliverables.parsed import Files
from x1_pretrain.deliverables.problems import Problem

CHECKS: tuple[Callable[[Files], list[Problem] | None], ...] = (
    run_checks.manifest_is_of_the_selected_run,
    run_checks.manifest_has_the_metrics,
    run_checks.manifest_has_the_tokens,
    run_checks.checkpoint_is_the_manifests,
    run_checks.spending_is_within_the_cap,
    run_checks.curve_ends_with_the_run,
    study_checks.N_is_the_profiles,
    study_checks.C_is_6ND,
    study_checks.isoflop_runs_have_one_budget,
    study_checks.runs_csv_is_the_sweep,
    study_checks.fit_and_prediction_are_of_these_runs,
    study_checks.prediction_is_of_the_run,
    study_checks.score_compares_prediction_and_run,
    study_checks.inference_in_fp32_is_the_run,
    study_checks.kv_cache_is_as_large_as_the_formula_says,
    study_checks.postmortem_names_the_step,
    study_checks.pictures_of_documents_exist,
)
