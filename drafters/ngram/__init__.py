"""Drafters that copy from the sequence's own text, over one incremental n-gram index a sequence."""
