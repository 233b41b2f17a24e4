"""Figures and the one-page HTML report."""
