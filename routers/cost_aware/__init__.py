"""The router that weighs what a draft is likely to bring against what it costs."""
