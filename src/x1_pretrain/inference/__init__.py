"""Serving a checkpoint: number formats, decoding with a KV cache, and what both cost."""
