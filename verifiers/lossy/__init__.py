"""Verifiers that may accept what the target would not have written; a pipeline with one says `lossless: false`."""
