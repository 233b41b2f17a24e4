"""The parts of benchmarks/gpu_check.py: the checks, their sizes, and the time they may take."""
