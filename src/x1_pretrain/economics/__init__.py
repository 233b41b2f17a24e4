"""FLOPs, hardware, and money. Never imports torch."""
