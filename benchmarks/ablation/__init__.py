"""The parts of benchmarks/ablations.py: plan, DVC's queue, finished runs, statistics, document."""
