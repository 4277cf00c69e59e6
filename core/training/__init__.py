"""What training of drafters, probes and arbiters shares: prompts, the target's own answers, checkpoints."""
