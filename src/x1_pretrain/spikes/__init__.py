"""Loss spikes: monitor, injections, replays, diagnosis, post-mortem."""
