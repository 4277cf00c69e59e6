"""Where something stands in a pipeline, and what is wrong with it. Knows nothing of YAML or of plugins."""

from __future__ import annotations

from attrs import define, field, frozen

from draftmux.errors import DraftmuxError, PipelineError, from_outside, said


@frozen
class Place:
    """A line of a file, or, without a line, a whole file or one `--set`."""

    origin: str
    line: int | None = None

    def __str__(self) -> str:
        return self.origin if self.line is None else f"{self.origin}:{self.line}"


@define
class Faults:
    """Collects every fault of a file, so that all are told at once."""

    found: list[tuple[Place, str]] = field(factory=list)

    def add(self, place: Place, message: str) -> None:
        """Record one fault: a sentence without its place."""
        self.found.append((place, message))

    def catching(self, place: Place, subject: str) -> Catching:
        """A context that records whatever its body raises as a fault of `subject`."""
        return Catching(self, place, subject)

    def __len__(self) -> int:
        return len(self.found)

    def sentences(self) -> list[str]:
        """`origin:line: message`, sorted by line; those without a line last."""
        ordered = sorted(self.found, key=lambda fault: (fault[0].line is None, fault[0].line or 0))
        return list(dict.fromkeys(f"{place}: {message}" for place, message in ordered))

    def raise_any(self) -> None:
        """Raise PipelineError if there is a fault."""
        if self.found:
            raise PipelineError(self.sentences())


@frozen
class Catching:
    """Ends every exception but the user's own interrupt: plugins may even raise SystemExit."""

    faults: Faults
    place: Place
    subject: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if error is None or from_outside(error):
            return False
        told = sentence(error)
        self.faults.add(self.place, f"{self.subject}: {told}" if self.subject else told)
        return True


def sentence(error: BaseException) -> str:
    """What an exception says, on one line. Some attrs validators put objects behind the text; these are left out."""
    text = error.args[0] if error.args and isinstance(error.args[0], str) else said(error)
    line = " ".join(text.split())
    return line if line and isinstance(error, (ValueError, DraftmuxError)) else f"{type(error).__name__}: {line}"
