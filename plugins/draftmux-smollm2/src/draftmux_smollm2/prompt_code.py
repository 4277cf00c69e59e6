"""Python stubs to complete, and requests about code in words. Every example is a result of the idea's expression."""

from __future__ import annotations

import calendar
import datetime
import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from draftmux_smollm2.prompt_ideas import IDEAS, KINDS
from draftmux_smollm2.prompt_words import Draw, lines, pool

_MODULES = {"calendar": calendar, "datetime": datetime, "math": math, "re": re}


class Function(NamedTuple):
    """One drawn function; `examples` are arguments and results, as Python writes them."""

    name: str
    signature: str
    text: str
    expression: str
    params: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> list[str]:
        """The standard modules that the expression uses."""
        return [name for name in _MODULES if f"{name}." in self.expression]


def evaluate(function: Function, arguments: str, expression: str | None = None) -> str:
    """What the function (or another expression over its parameters) returns, as Python writes it."""
    values = eval(f"({arguments},)", {})
    scope = {**_MODULES, **dict(zip(function.params, values, strict=True))}
    return repr(eval(expression or function.expression, scope))


def draw_function(rng: random.Random) -> Function:
    """A function with names, parameters and one to three true examples."""
    head, *texts = rng.choice(IDEAS).split(" ## ")
    names, types, expression = (part.strip() for part in head.split("::", 2))
    inputs, returns = types.split(" -> ")
    kinds = [KINDS[kind] for kind in inputs.split()]
    params: list[str] = []
    for kind in kinds:
        params.append(rng.choice([name for name in kind.names if name not in params]))
    for letter, param in zip("ABC", params, strict=False):
        expression = re.sub(rf"\b{letter}\b", param, expression)
    name = rng.choice([name for name in names.split() if name not in params])
    hints = ", ".join(f"{param}: {kind.hint}" for param, kind in zip(params, kinds, strict=True))
    quoted = [f"`{param}`" for param in params] if rng.random() < 0.4 else params
    text = rng.choice(texts).strip().format(*quoted)
    function = Function(name, f"def {name}({hints}) -> {returns}:", text, expression, tuple(params), ())
    wanted = rng.randint(1, 3)
    examples = dict.fromkeys(", ".join(repr(kind.draw(rng)) for kind in kinds) for _ in range(wanted))
    return function._replace(examples=tuple((example, evaluate(function, example)) for example in examples))


def _imports(function: Function, modern: bool) -> str:
    typing = sorted(set(re.findall(r"\b(List|Dict|Tuple)\b", function.signature)))
    found = [f"import {name}" for name in function.modules]
    if typing and not modern:
        found.append(f"from typing import {', '.join(typing)}")
    return "\n".join(found) + "\n\n\n" if found else ""


def stub_text(rng: random.Random, function: Function) -> str:
    """Imports, signature and docstring of the function, ready to be completed."""
    modern = rng.random() < 0.3
    quotes = "'''" if rng.random() < 0.12 else '"""'
    gap = rng.choice(["", "\n"])
    start = rng.choice(["", " ", "\n    "])
    shown = "".join(f"    >>> {function.name}({given})\n    {result}\n" for given, result in function.examples)
    signature = (
        re.sub(r"\b(List|Dict|Tuple)\b", lambda m: m[1].lower(), function.signature) if modern else function.signature
    )
    return f"{_imports(function, modern)}{signature}\n    {quotes}{start}{function.text}\n{gap}{shown}    {quotes}\n"


_STUB_ASKS = lines("""
Complete this Python function:
Finish the function below.
Please write the body of this function.
Complete the following code.
Implement this function so that its examples hold:
Here is the start of a Python file. Continue it.
""")


def stub(rng: random.Random) -> str:
    """A stub, alone or behind a short request."""
    text = stub_text(rng, draw_function(rng))
    return text if rng.random() < 0.55 else f"{rng.choice(_STUB_ASKS)}\n\n{text}"


# None may turn a set into a list: its order would change from one Python process to the next.
_BUGS = (
    *(
        (" > ", " < "),
        (" == ", " != "),
        (" + 1", ""),
        ("min(", "max("),
        ("max(", "min("),
        ("[::-1]", ""),
        ("sum(", "len("),
    ),
    *(
        (" not in ", " in "),
        ("sorted(x for", "list(x for"),
        (" >= ", " > "),
        (" * ", " + "),
        ("::2", "1::2"),
        (" % ", " // "),
    ),
    *(
        (" < ", " > "),
        (".lower()", ""),
        (" - ", " + "),
        (" // ", " / "),
        ("[0]", "[-1]"),
        ("reverse=True", "reverse=False"),
        ("1, ", "0, "),
    ),
)


def source(rng: random.Random, function: Function, expression: str) -> str:
    """A whole definition around the expression, in one of several shapes."""
    params = ", ".join(function.params)
    head = rng.choice([function.signature, f"def {function.name}({params}):"])
    result = rng.choice(["result", "answer", "output", "found"])
    body = rng.choice([f"    return {expression}", f"    {result} = {expression}\n    return {result}"])
    return f"{_imports(function._replace(signature=head), False)}{head}\n{body}"


def _write(rng: random.Random, function: Function) -> str:
    what = function.text[0].lower() + function.text[1:]
    call, result = function.examples[0]
    params = ", ".join(function.params)
    ask = rng.choice(
        [
            f"Write a Python function `{function.signature[4:-1]}`. It should {what}",
            f"Write a function in Python called {function.name} with the parameters {params}. {function.text}",
            f"I need a Python function named {function.name}({params}). The task: {what}",
            f"How would you write `{function.name}({params})` in Python? It has to {what}",
        ]
    )
    more = rng.choice(
        ["", f" For example, {function.name}({call}) returns {result}.", " Add a docstring.", " Explain the code."]
    )
    return ask + more


def _fix(rng: random.Random, function: Function) -> str:
    given, right = function.examples[0]
    for old, new in rng.sample(_BUGS, len(_BUGS)):
        wrong = function.expression.replace(old, new, 1)
        try:
            got = evaluate(function, given, wrong)
        except Exception as error:
            got = f"raises {type(error).__name__}"
        if got != right and "<" not in got:
            code = source(rng, function, wrong)
            call = f"{function.name}({given})"
            seen = got if got.startswith("raises") else f"gives {got}"
            return f"{rng.choice(_FIXES)}\n\n```python\n{code}\n```\n\n{call} should give {right}, but it {seen}."
    return _about(rng, function)


_FIXES = (
    "Find the bug in this code.",
    "My function gives a wrong result. Can you fix it?",
    "Please debug this function:",
)
_ABOUT = lines("""
Explain what this Python function does.
Explain this code line by line to a beginner.
Write a docstring for this function.
Write three unit tests with pytest for this function:
Rewrite this function with a plain for loop.
Refactor this code so that it is easier to read.
Translate this Python function to JavaScript.
Translate this code to Java.
What is the time complexity of this function? Explain why.
Suggest a better name for this function and its parameters, and explain your choice.
Which inputs could make this function fail? Add checks for them.
Add comments to this code.
""")


def _about(rng: random.Random, function: Function) -> str:
    return f"{rng.choice(_ABOUT)}\n\n```python\n{source(rng, function, function.expression)}\n```"


def _trace(rng: random.Random, function: Function) -> str:
    code = source(rng, function, function.expression)
    return (
        f"What does this program print?\n\n```python\n{code}\n\nprint({function.name}({function.examples[0][0]}))\n```"
    )


_POOLS: Mapping[str, Sequence[str]] = {
    "language": pool("Python, JavaScript, Java, C++, Go, Rust, C#, Ruby, TypeScript, Kotlin"),
    "how": pool("""
        read a text file line by line, sort a list of objects by a field, make an HTTP request, parse JSON, write a
        unit test, catch an error, format a date, loop over a dictionary, join two strings, read user input, copy a
        list, generate random numbers, split a string at commas, count words in a file, write data to a CSV file,
        use a queue, measure how long a function takes, define an interface, round a number, run code in parallel,
        log messages"""),
    "record": pool("""
        customers, orders, employees, books, students, products, invoices, movies, flights, patients, songs"""),
    "model": pool("""
        bank account, shopping cart, library, parking lot, playlist, chess clock, to-do list, address book, vending
        machine, stopwatch, deck of cards, elevator, thermostat, inventory, traffic light, contact form, quiz"""),
    "idea": pool("""
        recursion, a hash map, inheritance, a pointer, a REST API, unit testing, version control, a closure, a
        thread, an index in a database, a binary search, garbage collection, a compiler, a decorator, a stack, a
        linked list, a lambda, dependency injection, asynchronous code, type inference, a race condition, a cache,
        dynamic programming, a queue"""),
    "page": pool(
        "contact form, pricing table, login page, photo gallery, navigation bar, recipe card, weather widget, footer"
    ),
    "match": pool(
        "email addresses, phone numbers, dates like 2023-05-01, hex colors, hashtags, prices in dollars, URLs, times"
    ),
}
_GENERAL = lines("""
How do I <how> in <language>? {Show an example.|Please include code.|Keep it short.}
Write a class in <language> for a <model>. {Include comments.|Add a small example of how to use it.|Keep it simple.}
Write an SQL query that {counts|lists|deletes} the <record> {added in <month>|from <city>|without an email}.
Explain <idea> {to a beginner|with an example in <language>|in simple terms}.
Write HTML and CSS for a simple <page> {in <colour> and <colour2>|that works on phones|with a dark background}.
Write a regular expression that matches <match> and explain {it|its parts}.
Write a {bash|Python} script that {renames|counts|moves|zips} all {images|text files|log files} in a folder{| older
  than <a:3-90> days}.
What is the difference between <idea> and <idea2>?
Design a database table for <record> in a {small shop|web app|school}. Give the columns and their types.
Write a <language> program that prints {the numbers from <a:1-5> to <b:20-90>|a multiplication table up to <a:5-15>|a
  triangle of <a:4-12> lines}.
""")


def request(rng: random.Random) -> str:
    """A request about code, in words."""
    if rng.random() < 0.25:
        return Draw(rng, _POOLS).fill(rng.choice(_GENERAL))
    ask = rng.choices((_write, _fix, _about, _trace), weights=(8, 4, 5, 1))[0]
    return ask(rng, draw_function(rng))


def code(rng: random.Random) -> str:
    """Half stubs, half requests."""
    return stub(rng) if rng.random() < 0.5 else request(rng)
