"""What the suspect batch itself says: tests on its tokens, and where in it the loss sits."""

from dataclasses import dataclass

import numpy as np

from x1_pretrain.spikes.cross_evaluation import CONTROLS, CONTROLS_AHEAD, NORMAL_AHEAD
from x1_pretrain.spikes.data_tests import (
    BatchStatistics,
    Corpus,
    batch_statistics,
    duplicate_share,
    z_scores,
)
from x1_pretrain.spikes.evidence import DataEvidence
from x1_pretrain.spikes.lab import Lab, State
from x1_pretrain.spikes.monitor import robust_scale

NORMAL_BATCHES = 64
REST_SD_FLOOR_NATS = 0.02


@dataclass(frozen=True)
class BatchEvidence:
    """The tests on one batch, beside the medians of normal batches, and the rule's view of them."""

    batch: int
    statistics: BatchStatistics
    normal_medians: BatchStatistics
    z: dict[str, float]
    evidence: DataEvidence


def examine(lab: Lab, corpus: Corpus, before: State, number: int) -> BatchEvidence:
    """Test batch `number` against 64 normal ones; its losses are those on the state `before`."""
    suspect = lab.stream.batch(number)
    normal = [
        batch_statistics(lab.stream.batch(NORMAL_AHEAD + index), corpus) for index in range(NORMAL_BATCHES)
    ]
    medians = BatchStatistics(
        **{
            name: float(np.median([getattr(statistics, name) for statistics in normal]))
            for name in BatchStatistics.__dataclass_fields__
        }
    )
    statistics = batch_statistics(suspect, corpus)
    z = z_scores(statistics, normal)
    rare_targets, rare_loss, rest_z = _loss_on_rare_tokens(lab, corpus, before, suspect)
    evidence = DataEvidence(
        unigram_kl_z=z["unigram_kl_nats"],
        bigram_nll_z=z["bigram_nll_nats"],
        zlib_z=z["zlib_ratio"],
        repeated_fraction=statistics.repeated_fraction,
        repeated_fraction_normal=medians.repeated_fraction,
        rare_target_share=rare_targets,
        rare_loss_share=rare_loss,
        rest_loss_z=rest_z,
        outside_share=statistics.outside_share,
        duplicate_share=duplicate_share(suspect, (lab.stream.batch(n) for n in range(1, number))),
    )
    return BatchEvidence(number, statistics, medians, z, evidence)


def _loss_on_rare_tokens(
    lab: Lab, corpus: Corpus, before: State, suspect: np.ndarray
) -> tuple[float, float, float | None]:
    """Rare tokens' share of the targets and of the loss; z of the loss on the rest.

    z is against the same loss on the control batches, and None if every target is rare.
    """
    lab.trainer.restore(before.snapshot)
    controls = []
    for number in range(CONTROLS_AHEAD, CONTROLS_AHEAD + CONTROLS):
        batch = lab.stream.batch(number)
        common = ~corpus.rare[batch[:, 1:]]
        controls.append(float(lab.trainer.token_losses(batch)[common].mean()))
    losses = lab.trainer.token_losses(suspect).astype(np.float64)
    rare = corpus.rare[suspect[:, 1:]]
    median, sd = robust_scale(controls, REST_SD_FLOOR_NATS)
    rest_z = None if rare.all() else (float(losses[~rare].mean()) - median) / sd
    return float(rare.mean()), float(losses[rare].sum() / losses.sum()), rest_z
