"""Routers that learn from what their choices brought."""
