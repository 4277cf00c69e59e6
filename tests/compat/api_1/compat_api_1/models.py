"""Plugin API 1: a published model source. Written once, and never edited again; see the package."""

from __future__ import annotations

from draftmux.models.source import ModelSpec

COMPAT = ModelSpec(source="org/name", dtype="float32")
