"""EAGLE-3: a small head that reads the target's hidden states."""
