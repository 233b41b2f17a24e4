"""x1-pretrain: small-scale LLM pretraining in which every number is a re-derivable artifact."""

__version__ = "0.1.0"
