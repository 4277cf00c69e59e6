"""CoSpec: at each mismatch between draft and target an arbiter decides which of the two tokens stands. Lossy."""
