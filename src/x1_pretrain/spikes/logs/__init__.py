"""Spikes in the training logs of other programs, read, judged and explained for `spikes/analyse.py`."""
