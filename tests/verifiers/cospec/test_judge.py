"""A judge is an endpoint or a function; what it says is the label, and what it cannot say is told in a line."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from draftmux.errors import RequestError
from draftmux.verifiers.cospec.judge import Question, judge_of, judged

QUESTION = Question(({"role": "user", "content": "7 boxes of 12?"},), "84", "7*12=", "84", "7")


class Server(ThreadingHTTPServer):
    """An endpoint that replies as it is told."""

    reply: Any = "7"
    status = 200
    asked: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        message = {"role": "assistant", "content": self.server.reply}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("openai")
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


@pytest.mark.parametrize(
    ("reply", "label"),
    [("7", 0.7), ("Score: 2.5", 0.25), ("<think>9 or 8</think>10", 1.0), ("**7/10**", 0.7), ("3.", 0.3)],
)
def test_an_endpoint_is_asked_about_both_ways(server: Server, reply: str, label: float) -> None:
    server.reply = reply
    assert judged(judge_of(url(server), "m"), [QUESTION] * 3) == [label] * 3
    asked = server.asked[0]
    assert asked["model"] == "m" and asked["temperature"] == 0
    text = asked["messages"][-1]["content"]
    assert all(part in text for part in ("7 boxes of 12?", "[A]\n84", "[B]\n7", "[answer so far]\n7*12="))


@pytest.mark.parametrize(
    ("reply", "said"),
    [("good", "replied 'good'"), ("11", "11"), ("-1", "-1"), (None, "replied"), ("3 of 10", "3 of 10")],
)
def test_what_is_no_score_is_refused(server: Server, reply: Any, said: str) -> None:
    server.reply = reply
    with pytest.raises(RequestError, match=said):
        judged(judge_of(url(server), "m"), [QUESTION])


def test_an_endpoint_that_refuses_is_named(server: Server) -> None:
    server.status = 403
    with pytest.raises(RequestError, match=r"the judge at http://127.* failed"):
        judged(judge_of(url(server), "m"), [QUESTION])


def test_single_replies_that_are_no_score_are_left_out() -> None:
    replies = iter([7, math.nan, 2])
    assert judged(lambda question: next(replies), [QUESTION] * 3) == [0.7, None, 0.2]


def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(RequestError, match="the judge failed: ZeroDivisionError"):
        judged(lambda question: 1 / 0, [QUESTION])


def half(question: Question) -> float:
    return 5.0 if question.drafted == "84" else 0.0


def test_a_function_is_found_by_name() -> None:
    assert judged(judge_of(f"{__name__}:half", None), [QUESTION]) == [0.5]


@pytest.mark.parametrize("score", [float("nan"), "7", None, 10.5])
def test_a_function_must_give_a_score(score: Any) -> None:
    with pytest.raises(RequestError, match="from 0 to 10"):
        judged(lambda question: score, [QUESTION])


@pytest.mark.parametrize(
    ("name", "model", "said"),
    [
        ("http://localhost:1/v1", None, "--judge-model"),
        ("json:dumps", "m", "none; it begins with http"),
        ("nothing_of_that_name:f", None, "cannot be imported|can be imported"),
        ("json:nothing", None, "can be imported"),
        ("json", None, "can be imported"),
        ("", None, "can be imported"),
        ("json:__name__", None, "is no function"),
    ],
)
def test_what_is_no_judge_is_told(name: str, model: str | None, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        judge_of(name, model)
