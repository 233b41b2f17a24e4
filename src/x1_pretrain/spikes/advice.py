"""Words for each verdict: what the cause is, and what would have prevented it."""

CAUSES = {
    "dataset_corruption": ("The batches themselves are bad: not drawn from the corpus, or not in its order."),
    "rare_token": ("A few tokens that the corpus hardly has carry most of the loss and of the gradient."),
    "adam_second_moment": (
        "Adam's second moment was too small for the gradients, so that updates were too large."
    ),
    "lr_too_high": "The learning rate is beyond what this state can bear, whatever the batch.",
    "interaction": ("Neither these batches nor this state suffices; it takes both, as PaLM's authors found."),
    "numeric": "The numbers themselves failed: overflow, hardware, or a run that does not repeat.",
    "benign": "A hard batch, but one that did the weights no harm.",
    "undetermined": "The replays do not agree on any one cause, and none is claimed.",
}

PREVENTION = {
    "foreign_tokens": (
        "Verifying each shard's sha256 before training, and refusing a batch whose token histogram "
        "is far from the corpus's (unigram KL): both cost nothing beside a training step."
    ),
    "broken_order": (
        "A test of order at the loader. Such a batch may have a normal token histogram; its bigram "
        "likelihood under the corpus is not, and one table of counts is enough to see it."
    ),
    "repeated_ngram": (
        "A curation filter that drops documents in which an n-gram of 1 to 13 tokens repeats 32 "
        "times or more, and the same test at the loader, as OLMo 2 does."
    ),
    "compressibility": "A bound on the compression ratio of documents, in curation.",
    "ids_out_of_range": (
        "A check of every id against the vocabulary's size when shards are opened: a wrong dtype or another "
        "tokenizer shows there at once."
    ),
    "duplicate": (
        "Deduplication in curation, and a loader whose order is a permutation: nothing is read twice in "
        "an epoch."
    ),
    "rare_token": (
        "A tokenizer trained on this corpus, no weight decay on embeddings, and a filter for "
        "documents made of rare tokens."
    ),
    "adam_second_moment": (
        "A smaller beta2 (0.95), or update clipping in the optimizer (StableAdamW). Resetting the "
        "second moment is no remedy: it spiked again in public runs."
    ),
    "lr_too_high": (
        "A lower peak learning rate or a longer warm-up, QK-norm, and a muP rescale whenever the "
        "width changes."
    ),
    "restarted_warmup": (
        "A schedule that is a function of the step alone and is part of the checkpoint; after a resume, a "
        "test that the first lr is the one an uninterrupted run would have."
    ),
    "interaction": "Nothing simple: keep checkpoints, rewind, and skip the batches, as PaLM did.",
    "not_reproducible": (
        "Deterministic kernels and a loader whose order is a function of the step; then a check of "
        "the machine."
    ),
    "nonfinite": "Wider numbers where it overflowed (bf16 or fp32), and z-loss on the logits.",
    "numeric": "Wider numbers where it overflowed (bf16 or fp32), and a check of the machine.",
    "benign": "Nothing needs to be prevented.",
    "undetermined": (
        "Unknown. More would be known with update norms per tensor, attention logits and closer "
        "checkpoints in the log."
    ),
}
