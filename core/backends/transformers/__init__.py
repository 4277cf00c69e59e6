"""Any causal language model of transformers as the target, on any device."""
