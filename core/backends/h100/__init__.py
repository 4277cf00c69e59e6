"""Static KV slots, CUDA graphs and a tree-attention kernel: the backend for one H100 or a GPU like it."""
