"""Shipped pipelines: one YAML file each, found by name."""
