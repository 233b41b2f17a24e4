"""From text to tokens: sources, curation, tokenizer, shards, loader."""
