"""Drafters, targets and Hypothesis strategies that make decoding faults visible."""
