"""Where the pair's weights are."""

from __future__ import annotations

from pathlib import Path

from draftmux.models.source import ModelSpec

HERE = Path(__file__).parent
TARGET = ModelSpec(source=str(HERE / "target"), dtype="float32")
DRAFT = ModelSpec(source=str(HERE / "draft"), dtype="float32")
