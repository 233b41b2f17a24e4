"""The parts of time_to_loss.py: the terms, each side, and the verdict."""
