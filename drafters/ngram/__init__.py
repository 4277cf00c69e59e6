"""Drafters that copy from the sequence's own text, over one incremental n-gram index a sequence."""

LONGEST = 128  # tokens of an n-gram, at most: the index keeps that many for every token of the text
MOST = 1024  # tokens of a draft, branches of one, matches looked at: far more than a target can check at once
