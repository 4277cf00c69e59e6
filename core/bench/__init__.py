"""Pipelines side by side with plain decoding, interleaved in one run."""
