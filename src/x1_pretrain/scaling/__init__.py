"""Scaling laws: point fit, posterior, IsoFLOP parabola, prediction, score. Never imports torch."""
