"""What drafters with a model of their own share: its KV rows, growing drafts level by level, a test at load."""
