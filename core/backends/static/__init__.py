"""Static KV slots, prepacked weights and an attention of its own: the backend for CPUs, and for any GPU."""
