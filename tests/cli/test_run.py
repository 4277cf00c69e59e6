from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.verifiers.exact_match import ExactMatch

Command = Callable[..., Result]
Pipeline = Callable[..., str]

PROMPT = "abc abc abc"
SUMMARY = re.compile(
    r"\[(\d+) tokens in \d+\.\d s, \d+\.\d tokens/s, mean acceptance length \d\.\d\d, "
    r"ended by (stop|length)(; LOSSY.*)?\]\n"
)


@pytest.fixture(scope="module")
def plain(model: Path) -> Callable[[str], str]:
    """What transformers' own greedy decoding answers, 12 tokens long."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from draftmux.models.checkpoint import quietly

    with quietly():
        network, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)

    def answer(prompt: str) -> str:
        chat = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with quietly():
            out = network.generate(**ids, do_sample=False, max_new_tokens=12, pad_token_id=0)
        return str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))

    return answer


def refused(result: Result, *messages: str) -> None:
    """One message on standard error, and neither a traceback nor a half result."""
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr
    for message in messages:
        assert message in result.stderr


def test_one_prompt_prints_the_targets_own_text(command: Command, pipeline: Pipeline, plain: Any) -> None:
    result = command("run", pipeline(), "--prompt", PROMPT)
    assert result.stdout == plain(PROMPT) + "\n"
    [(tokens, reason, lossy)] = SUMMARY.findall(result.stderr)
    assert (tokens, reason, lossy) == ("12", "length", "")
    assert len(set(plain(PROMPT))) > 4


def test_several_prompts_come_out_in_order(command: Command, pipeline: Pipeline, plain: Any) -> None:
    prompts = ["one", "two two two two", "x"]
    result = command("run", pipeline(), *(f"--prompt={prompt}" for prompt in prompts))
    assert result.stdout == "".join(plain(prompt) + "\n" for prompt in prompts)
    assert len(SUMMARY.findall(result.stderr)) == 3


def test_a_file_and_standard_input_are_prompts_as_they_stand(
    command: Command, pipeline: Pipeline, plain: Any, tmp_path: Path
) -> None:
    text = "café\n\nabc abc\n"
    file = tmp_path / "prompt.txt"
    file.write_text(text, encoding="utf-8")
    assert command("run", pipeline(), "--prompt-file", str(file)).stdout == plain(text) + "\n"
    assert command("run", pipeline(), "-", input=text).stdout == plain(text) + "\n"
    both = command("run", pipeline(), "-", "--prompt", "first", "--prompt-file", str(file), input="last")
    assert both.stdout == "".join(plain(prompt) + "\n" for prompt in ("first", text, "last"))


def test_json_gives_one_object_a_result(command: Command, pipeline: Pipeline, plain: Any) -> None:
    result = command(
        "run", pipeline(), "--json", "--prompt", PROMPT, "--prompt", "x", "--set", "generation.logprobs=true"
    )
    assert result.stderr == ""
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["text"], second["text"]) == (plain(PROMPT), plain("x"))
    assert (first["request_id"], second["request_id"]) == ("request-0", "request-1")
    assert first["prompt_tokens"] == len(PROMPT) + 2
    assert len(first["tokens"]) == len(first["logprobs"]) == 12
    assert all(value <= 0 for value in first["logprobs"])
    assert (first["finish_reason"], first["lossless"]) == ("length", True)
    assert first["metrics"]["steps"] + first["metrics"]["accepted"] >= 12
    assert first["metrics"]["steps_by_drafter"]["copy"] > 0


def test_settings_of_the_file_can_be_overridden(command: Command, pipeline: Pipeline, plain: Any) -> None:
    text = plain(PROMPT)
    result = command("run", pipeline(), "--prompt", PROMPT, "--set", f"generation.stop={json.dumps([text[3:5]])}")
    assert result.stdout == text[: text.index(text[3:5])] + "\n"
    assert "ended by stop]" in result.stderr
    shorter = command("run", pipeline(), "--prompt", PROMPT, "--json", "--set", "generation.max_new_tokens=3")
    assert len(json.loads(shorter.stdout)["tokens"]) == 3


def test_the_same_seed_gives_the_same_text(command: Command, pipeline: Pipeline) -> None:
    def sampled(seed: int, *more: str) -> str:
        settings = [f"--set=generation.{setting}" for setting in ("temperature=1.0", f"seed={seed}")]
        return command("run", pipeline(), "--prompt", PROMPT, *settings, *more).stdout

    assert sampled(1) == sampled(1, "--set", "drafters={}")
    assert sampled(1) != sampled(2)


def test_a_drafter_that_never_engages_is_told(command: Command, pipeline: Pipeline) -> None:
    idle = command("run", pipeline("drafters: {copy: {use: copyspec, gamma: 99}}"), "--prompt", "x")
    assert "[no drafter ever had a draft: copy; this was plain decoding]\n" in idle.stderr
    assert "no drafter" not in command("run", pipeline(), "--prompt", PROMPT).stderr
    assert "no drafter" not in command("run", pipeline("drafters: {}"), "--prompt", PROMPT).stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt lookup fails whenever it is asked."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("no matches to divide by")

    monkeypatch.setattr(PromptLookup, "propose_one", fail)


@pytest.mark.usefixtures("failing")
def test_a_plugin_that_fails_ends_the_run_with_its_name(command: Command, pipeline: Pipeline) -> None:
    for more in ([], ["--json"], ["--prompt", "x"]):
        result = command("run", pipeline(), "--prompt", PROMPT, *more, code=1)
        refused(result, "drafter 'copy': ZeroDivisionError: no matches to divide by", "on_plugin_error: skip")


@pytest.mark.usefixtures("failing")
def test_or_costs_nothing_but_speed_and_is_counted(command: Command, pipeline: Pipeline, plain: Any) -> None:
    result = command("run", pipeline(), "--prompt", PROMPT, "--set", "on_plugin_error=skip")
    assert result.stdout == plain(PROMPT) + "\n"
    assert re.search(r"^\[plugin fault, \d+x: drafter 'copy': ZeroDivisionError: no matches", result.stderr, re.M)


def test_a_lossy_run_says_so(command: Command, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactMatch, "lossless", False)
    result = command("run", pipeline(), "--prompt", PROMPT, "--set", "lossless=false")
    assert "; LOSSY: the text is not the target's own]" in result.stderr
    told = command("run", pipeline(), "--prompt", PROMPT, "--set", "lossless=false", "--json")
    assert json.loads(told.stdout)["lossless"] is False


def test_threads_are_torchs(command: Command, pipeline: Pipeline) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        command("run", pipeline(), "--prompt", "x", "--threads", "1")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no prompt; give --prompt TEXT, --prompt-file FILE, or - for standard input"),
        (["--prompt", "x", "--threads", "0"], "--threads"),
        (["--prompt-file", "."], "is a directory"),
        (["stdin"], "'stdin' is not '-'"),
        (["--tokens", "3"], "No such option"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    arguments: list[str], message: str, command: Command, pipeline: Pipeline
) -> None:
    result = command("run", pipeline(), *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: ")
    assert message in result.stderr


def test_an_unreadable_prompt_is_refused(command: Command, pipeline: Pipeline, tmp_path: Path) -> None:
    missing, garbled = tmp_path / "missing.txt", tmp_path / "garbled.txt"
    garbled.write_bytes(b"caf\xe9")
    for file in (missing, garbled):
        result = command("run", pipeline(), "--prompt-file", str(file), code=1)
        refused(result, f"--prompt-file {file} cannot be read as UTF-8 text")
    refused(command("run", pipeline(), "-", input=b"caf\xe9", code=1), "standard input cannot be read as UTF-8 text")


def test_half_a_surrogate_pair_is_refused(command: Command, pipeline: Pipeline) -> None:
    """What Python makes of an argument that is not UTF-8."""
    refused(command("run", pipeline(), "--prompt", "caf\udce9", code=1), "cannot encode the prompt")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("generation", "--set generation: write key.path=value, such as generation.temperature=0.7"),
        ("generation.temprature=1", "unknown key 'temprature' in generation; did you mean 'temperature'?"),
        ("generation.temperature=hot", "generation.temperature must be a number, not the text 'hot'"),
        ("drafters.copy.use=pdl", "unknown drafter 'pdl'; did you mean 'pld'?"),
        ("drafters.copy.max_n=0", "'max_n' must be >= 1: 0"),
        ("generation.stop=[", "not valid YAML"),
        ("models.target.source=./nowhere", "there is no such file or folder"),
        ("models.target.device=abacus", "device 'abacus' cannot be used"),
        ("generation.stop=['']", "an empty stop text"),
        ("generation.bad_word_ids=[[999]]", "names token 999; the target's ids are 0 to 258"),
    ],
)
def test_a_bad_setting_is_refused(override: str, message: str, command: Command, pipeline: Pipeline) -> None:
    refused(command("run", pipeline(), "--prompt", "x", "--set", override, code=1), message)


def test_an_unknown_pipeline_is_refused(command: Command, tmp_path: Path) -> None:
    result = command("run", "pdl", "--prompt", "x", code=1)
    refused(result, "pdl: no such file, and no shipped pipeline of that name; did you mean 'pld'?")
    refused(command("run", str(tmp_path), "--prompt", "x", code=1), "cannot be read")


def test_all_faults_of_a_file_are_told(command: Command, pipeline: Pipeline) -> None:
    path = pipeline("drafters: {copy: {use: pdl}}\nrooter: {use: fixed}")
    result = command("run", path, "--prompt", "x", code=1)
    refused(result, f"{path}:2: unknown drafter 'pdl'", f"{path}:3: unknown key 'rooter'; did you mean 'router'?")


def test_a_prompt_that_is_too_long_is_refused(command: Command, pipeline: Pipeline) -> None:
    refused(
        command("run", pipeline(), "--prompt", "x" * 200, code=1),
        "the prompt has 202 tokens; the target attends to 128",
    )


def test_a_backend_without_text_is_refused(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "scripted.yaml"
    path.write_text("backend: {use: scripted, table: {0: [0, 1], 1: [1, 0]}}\n")
    refused(command("run", str(path), "--prompt", "x", code=1), "this backend has no tokenizer")
