"""A smaller language model as drafter: a model of its own, or the target's first layers."""
