"""The model card of a trained arbiter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux.training.card import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.verifiers.cospec.checkpoint import About

CARD = """---
library_name: draftmux
tags: [speculative-decoding, arbiter]
---

# An arbiter for {target} and {draft}

It decides at each mismatch of draft and target which token stands, for the verifier `cospec-arbiter` of draftmux. The
text may then differ from the target's own, and a pipeline says so:

```yaml
verifier: {{use: cospec-arbiter, arbiter: {folder}, draft: draft}}
lossless: false
```

- target: `{target}`, fingerprint `{target_fingerprint}`
- draft model: `{draft}`, fingerprint `{draft_fingerprint}`
- problems: {problems}
- command: `{command}`
- threshold: {threshold}, by held-out problems

Of problems that were held out:

| | |
| --- | --- |
{figures}
"""


def card(about: About, folder: str) -> str:
    """The text of `README.md`."""
    solved = about.metrics.get("thresholds", {})
    rows = {f"solved at a threshold of {name}": right for name, right in solved.items()}
    for stage in ("warmup", "grpo"):
        rows |= _of_stage(stage, about.metrics.get(stage, {}))
    return CARD.format(
        target=about.target,
        target_fingerprint=about.target_fingerprint[:16],
        draft=about.draft,
        draft_fingerprint=about.draft_fingerprint[:16],
        folder=folder,
        threshold=about.threshold,
        problems=about.origin.get("problems"),
        command=about.origin.get("command"),
        figures="\n".join(f"| {name} | {text_of(value)} |" for name, value in rows.items()),
    )


def _of_stage(stage: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{stage}: {name.replace('_', ' ')}": value for name, value in figures.items()}
