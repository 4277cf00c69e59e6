"""A judge of mismatches in place of their outcomes: a model behind an OpenAI-compatible endpoint, or a function.

It scores the draft's token from 0 to 10; a tenth of that is the label. Knows nothing of arbiters or decoding.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 10.0  # a judge's highest score
SCORE = re.compile(r"(?:score\s*[:=]?\s*)?(-?\d+(?:\.\d+)?)(?:\s*/\s*10)?\.?", re.IGNORECASE)
INSTRUCTIONS = """You compare two ways in which an answer may go on. Score from 0 to 10 how good it is to go on with A \
instead of B: 10 if A leads to a right answer and B does not, 5 if it makes no difference, 0 if A leads to a wrong \
answer and B does not. Reply with the number alone."""


@frozen
class Question:
    """One mismatch as text: the chat, the reference of a right answer, the answer so far, how the draft goes on, and
    the target's token in place of the draft's first."""

    messages: Sequence[Mapping[str, str]]
    reference: str
    so_far: str
    drafted: str
    verified: str


Judge = Callable[[Question], float]


class UnusableError(Exception):
    """A reply that is no score."""


@frozen(eq=False)
class Endpoint:
    """A model behind an OpenAI-compatible endpoint, asked at temperature 0, `at_once` questions together."""

    client: Any
    model: str
    at_once: int = 8

    def __call__(self, question: Question) -> float:
        """Its score; RequestError when it cannot be reached, or does not reply with a number from 0 to 10."""
        from openai import OpenAIError

        chat = "\n\n".join(f"[{each['role']}]\n{each['content']}" for each in question.messages)
        asked = (
            f"{chat}\n\n[reference answer]\n{question.reference}\n\n[answer so far]\n{question.so_far}\n\n"
            f"[A]\n{question.drafted}\n\n[B]\n{question.verified}"
        )
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": asked}]
        try:
            reply = self.client.chat.completions.create(model=self.model, messages=messages, temperature=0)
            text = str(reply.choices[0].message.content)
        except (OpenAIError, IndexError, AttributeError) as error:
            raise RequestError(
                f"the judge at {self.client.base_url} failed: {error}; run the same command again to go on"
            ) from error
        found = SCORE.fullmatch(text.rpartition("</think>")[2].replace("*", "").strip())
        if found is None:
            raise UnusableError(
                f"the judge '{self.model}' replied {text[:200]!r} where a number from 0 to 10 was asked"
            )
        return float(found[1])


def judge_of(name: str, model: str | None) -> Judge:
    """An endpoint's URL with the name of its model, or `module:function`; RequestError when it is neither."""
    if name.startswith(("http://", "https://")):
        if model is None:
            raise RequestError(f"--judge {name} is an endpoint; say with --judge-model which of its models is asked")
        return Endpoint(_client(name), model)
    if model is not None:
        raise RequestError(f"--judge-model goes with an endpoint, and --judge {name} is none; it begins with http")
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # somebody else's module
        raise RequestError(
            f"--judge {name} is no URL, and no function as module:function that can be imported: {error}"
        ) from error
    if not callable(found):
        raise RequestError(f"--judge {name} is no function")
    return found  # type: ignore[no-any-return]


def _client(url: str) -> Any:
    try:
        from openai import OpenAI
    except ImportError as error:
        raise RequestError(
            f"a judge behind a URL needs the package openai: pip install 'draftmux[train]' ({error})"
        ) from error
    try:
        return OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"), max_retries=3)
    except Exception as error:  # of several libraries
        raise RequestError(f"--judge {url} is no URL of an endpoint: {error}") from error


def judged(judge: Judge, questions: Sequence[Question]) -> list[float | None]:
    """Labels, 0 to 1, of all questions, None where a reply is no score; RequestError when most are none."""
    with ThreadPoolExecutor(getattr(judge, "at_once", 1)) as pool:
        found = list(pool.map(partial(_asked, judge), questions))
    faults = [each for each in found if isinstance(each, str)]
    if 2 * len(faults) > len(found):
        raise RequestError(f"{len(faults)} of {len(found)} replies of the judge are no scores; the first: {faults[0]}")
    return [None if isinstance(each, str) else each / MOST for each in found]


def _asked(judge: Judge, question: Question) -> float | str:
    """A score, or what is wrong with the reply."""
    try:
        score: Any = judge(question)
    except UnusableError as error:
        return str(error)
    except RequestError:
        raise
    except Exception as error:  # a function of the user's
        raise RequestError(f"the judge failed: {error!r}; run the same command again to go on") from error
    if isinstance(score, bool) or not isinstance(score, Real) or not 0 <= float(score) <= MOST:
        return f"{score!r}; a score is a number from 0 to {MOST:g}"
    return float(score)
