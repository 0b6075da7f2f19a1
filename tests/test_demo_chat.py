"""The chat in the terminal: stopped, killed, typed into, and gone on with."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import termios
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from langchain_runjournal import RunJournal
from langchain_runjournal.demo import _chat, _engine, chat
from langchain_runjournal.testing import Call, ScriptedChatModel
from tests._terminal import Terminal

MODULE = "langchain_runjournal.demo"
PROMPT = r"\n  you    $"


def sit(directory: Path, *options: str, pace: str = "0.3") -> Terminal:
    """At a chat that is kept in a directory."""
    return Terminal(MODULE, "--chat", "--directory", str(directory), *options, RUNJOURNAL_DEMO_PACE=pace)


def pipe(lines: str, *options: str, pace: str = "0.02", **env: str) -> subprocess.CompletedProcess[str]:
    """Lines instead of a keyboard."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", MODULE, "--chat", *options],
        input=lines,
        env={**inherited, "RUNJOURNAL_DEMO_PACE": pace, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8", **env},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def squeezed(text: str) -> str:
    """Without what breaks lines."""
    return " ".join(text.split())


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_the_next_line_goes_on(tmp_path: Path) -> None:
    """What was said stays, the model is sent it, and goes on from the very next word. Ctrl-D leaves."""
    with sit(tmp_path) as terminal:
        assert str(tmp_path) in terminal.wait_for(PROMPT).string
        terminal.send("count to 900\r")
        terminal.wait_for(r"agent  1 2 3 4 5 6 7 ")
        terminal.send("\x03")
        last = int(terminal.wait_for(r"(\d+)\s+■ Stop")[1])
        terminal.wait_for(PROMPT)
        terminal.send("go on\r")
        terminal.wait_for(rf"agent  {last + 1} {last + 2} ")
        terminal.send("\x03")
        terminal.wait_for(r"■ Stop")
        terminal.wait_for(PROMPT)
        terminal.send("\x04")
        assert terminal.end() == 0
    with RunJournal(tmp_path / "runs.db") as journal:
        (stopped, _) = sorted(journal.runs(), key=lambda run: run.started_at)
        assert (stopped.status, stopped.cause, stopped.settled) == ("interrupted", "stop", True)
        assert journal.transcript(stopped.run_id)[-1].text.split()[-1] == str(last)
    assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_a_typed_line_stops_the_answer_and_is_the_next_message(tmp_path: Path) -> None:
    """It can be seen while it is typed, and given up again; then the answer goes on."""
    with sit(tmp_path, pace="1") as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("count to 900\r")
        terminal.wait_for(r" 5 6 7 ")
        terminal.send("what")
        shown = terminal.wait_for(r"\n  you    what$")
        terminal.send("\x7f\x7f\x7f\x7f\r")
        after = int(terminal.wait_for(r"agent  (\d+) \d+ \d+ ")[1])
        assert after == int(re.findall(r"\d+", shown.string)[-1]) + 1, "nothing is missing where it was typed"
        terminal.send("what have you been sent?\r")
        terminal.wait_for(r"■ Stop")
        told = terminal.wait_for(r"I have been sent 3 messages:(.*)\n  you    $")[1]
        assert re.search(r"- you: count to 900\s+- agent: 1 2 3 .*\(cut off: you\s+pressed\s+Stop\)", told)
        terminal.insist("\x03", r"Ctrl-C once more, Ctrl-D or /quit leaves\..*\n  you    $")
        terminal.insist("\x03", None)
        assert terminal.end() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_killed_and_started_again_it_goes_on(tmp_path: Path) -> None:
    """/kill WORDS kills in mid-answer; the next start shows what was cut off, and goes on with it; so does /kill alone."""
    with sit(tmp_path) as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("/kill count to 900\r")
        last = int(terminal.wait_for(r"(\d+)\s+■ kill -9")[1])
        assert terminal.end() == -9
        assert termios.tcgetattr(terminal.master)[3] & termios.ECHO, "the terminal is as it was"
    with sit(tmp_path) as terminal:
        terminal.wait_for(r"The last process was killed\. What was cut off is recovered\.")
        cut = int(
            terminal.wait_for(r"you    count to 900\s+agent  1 2 [\d\s]*?(\d+)\s+✂ cut off here: its process was killed")[1]
        )
        assert cut >= last >= 11
        terminal.wait_for(PROMPT)
        terminal.send("go on\r")
        terminal.wait_for(rf"agent  {cut + 1} {cut + 2} ")
        terminal.send("/kill\r")
        terminal.wait_for(r"■ kill -9")
        assert terminal.end() == -9
    with sit(tmp_path) as terminal:
        terminal.wait_for(rf"you    go on\s+agent  {cut + 1} {cut + 2} .*✂ cut off here: its process was killed")
        terminal.wait_for(PROMPT)
        terminal.send("/kill\r")
        terminal.wait_for(r"■ kill -9")
        assert terminal.end() == -9
    with sit(tmp_path, "--new") as terminal:
        assert "✂" not in terminal.wait_for(PROMPT).string
        terminal.send("/quit\r")
        assert terminal.end() == 0


@pytest.mark.slow
def test_a_stop_among_tools_keeps_what_has_finished(tmp_path: Path) -> None:
    """The next line asks again for the one that had not, and for no other."""
    with sit(tmp_path, pace="0.3") as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("What is the weather in Oslo, Rome and Cairo?\r")
        terminal.wait_for(r"▸ weather Oslo, Rome, Cairo\s+✓ Oslo: .*✓ Rome: ")
        terminal.send("\x03")
        terminal.wait_for(r"■ Stop")
        terminal.wait_for(PROMPT)
        terminal.send("/history\r")
        terminal.wait_for(r"✓ Oslo: .*✓ Rome: .*◇ filled in")
        terminal.wait_for(PROMPT)
        terminal.send("go on\r")
        terminal.wait_for(r"▸ weather Cairo\s+✓ Cairo: .*agent  Here it is\. Cairo: ")
        terminal.wait_for(PROMPT)
        terminal.send("/quit\r")
        assert terminal.end() == 0


@pytest.mark.slow
def test_two_chats_do_not_answer_in_one_conversation(tmp_path: Path) -> None:
    """The second one says that it is busy, and may begin another conversation."""
    with sit(tmp_path, pace="1") as terminal:
        terminal.wait_for(PROMPT)
        terminal.send("count to 900\r")
        terminal.wait_for(r" 5 6 7 ")
        done = pipe("count to 3\n/new\ncount to 4\n", "--directory", str(tmp_path))
        terminal.send("/quit\r")
        assert terminal.end() == 0
    assert "This conversation is busy: another chat is answering in it." in squeezed(done.stdout)
    assert "you count to 4 agent 1 2 3 4" in squeezed(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")


def test_lines_of_a_pipe_are_answered_in_turn(tmp_path: Path) -> None:
    """Without colours, and then it ends; it is kept where the state of a user belongs, and says so."""
    asked = "count to 5\n\nHello [red]there[/red]\nWhat have you been sent?\n/view\n/help\n/nothing\n"
    done = pipe(asked, XDG_STATE_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout)
    text = squeezed(done.stdout)
    assert f"It is kept in {tmp_path / 'runjournal-chat'}" in done.stdout
    assert "you count to 5 agent 1 2 3 4 5 you Hello [red]there[/red] agent You have said: “Hello [red]there[/red]”." in text
    assert "I have been sent 5 messages: - you: count to 5 - agent: 1 2 3 4 5 - you: Hello" in text
    page = re.search(r"Written to (.*\.html)\n", done.stdout)
    assert page is not None
    html = Path(page[1]).read_text(encoding="utf-8")
    assert "count to 5" in html
    assert "There is no command /nothing." in text
    assert "sends the words, and kills this process in the middle of the answer" in text
    again = pipe("What have you been sent?\n", XDG_STATE_HOME=str(tmp_path))
    assert "I have been sent 7 messages:" in again.stdout


def chat_here(directory: Path, model: str | None = None) -> tuple[int, str]:
    screen = io.StringIO()
    with redirect_stderr(io.StringIO()) as complaint:
        status = chat(Console(file=screen, width=100), directory=directory, model=model)
    return status, squeezed(f"{screen.getvalue()} {complaint.getvalue()}")


@pytest.mark.parametrize("where", ["attach", "start_run"])
def test_whatever_goes_wrong_below_the_keyboard_is_told(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what nobody has thought of: the chat does not wait for an answer that never comes."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise LookupError("nobody has thought of this")

    monkeypatch.setattr(_engine, where, broken)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    with pytest.raises(LookupError, match="nobody has thought"):
        chat_here(tmp_path)


def test_a_real_model_needs_langchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    status, text = chat_here(tmp_path, "openai:gpt-5")
    assert status == 1
    assert 'pip install "langchain-runjournal[agent]"' in text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt-5", "A real model is named as provider:name, for example \"openai:gpt-5\", and not 'gpt-5'."),
        ("nobody:model", "nobody:model cannot be used: "),
        ("openai:gpt-5", "requires the langchain-openai package"),
    ],
)
def test_a_model_that_is_not_there_is_told(name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a provider; nobody's; one whose package is missing: a sentence that says what to do, and 1."""
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    status, text = chat_here(tmp_path, name)
    assert status == 1
    assert says in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-sonnet-4-5", "google_genai:gemini-2.5-flash"])
def test_a_missing_key_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked: the variable to set."""
    provider = name.partition(":")[0]
    pytest.importorskip({"google_genai": "langchain_google_genai"}.get(provider, f"langchain_{provider}"))
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    status, text = chat_here(tmp_path, name)
    assert status == 1
    assert re.search(
        rf"^runjournal: {provider} needs a key\. Set the variable [A-Z]+_API_KEY to yours, and try again\.$", text
    )


def test_an_answer_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has said stays, and the next line goes on."""
    model = ScriptedChatModel([["Half an ", ConnectionError("the provider\ndropped the stream")], "The rest."])
    monkeypatch.setattr(_chat, "real_model", lambda name, tools: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\nGo on\n/history\n"))
    status, text = chat_here(tmp_path, "some:model")
    assert "agent Half an The answer failed: " in text
    assert "the provider dropped the stream" in text
    assert "you Go on agent The rest." in text
    assert "agent Half an ✂ cut off here: something went wrong you Go on" in text
    assert status == 1, "in a pipe, somebody may want to know"
    assert [one.text for one in model.requests[1]] == ["Hello", "Half an ", "Go on"]


def test_what_a_terminal_obeys_does_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences of a model, and of somebody who types them, are taken out."""
    model = ScriptedChatModel(["Title: \x1b]0;mine\x07 and \x9b31m red"])
    monkeypatch.setattr(_chat, "real_model", lambda name, tools: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hel\x1b[2Jlo\n/history\n/\x1b[2J\n"))
    screen = io.StringIO()
    assert chat(Console(file=screen, width=100), directory=tmp_path, model="some:model") == 0
    assert "Title: ]0;mine and 31m red" in screen.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", screen.getvalue())


def test_a_real_model_has_the_tool_and_is_told_of_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent has it: the half answer in its history is not taken for its own choice."""
    models = pytest.importorskip("langchain.chat_models")
    model = ScriptedChatModel([["Half an ", ConnectionError("gone")], [Call("weather", {"city": "Oslo"})], "It is sunny."])
    monkeypatch.setattr(models, "init_chat_model", lambda name: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\nGo on\n"))
    monkeypatch.setenv("RUNJOURNAL_DEMO_PACE", "0.01")
    _, text = chat_here(tmp_path, "somebody:model")
    assert "you Go on agent ▸ weather Oslo ✓ Oslo: sunny, 21 degrees agent It is sunny." in text
    assert model.requests[1][-1].text.startswith("<note>The previous answer was cut off: an error occurred.")
    assert "note" not in text


def test_an_answer_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in an answer can be read; a line that is broken by us begins at the margin."""
    program = "Here:\n\n    def f():\n        return  1\n\nThat " + "was " * 30 + "all.\n\n"
    monkeypatch.setattr(_chat, "real_model", lambda name, tools: ScriptedChatModel([program]))
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    screen = io.StringIO()
    assert chat(Console(file=screen, width=60), directory=tmp_path, model="some:model") == 0
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    begin = lines.index("  agent  Here:")
    margin = " " * 9
    assert lines[begin + 1 : begin + 5] == ["", f"{margin}    def f():", f"{margin}        return  1", ""]
    assert lines[begin + 5].startswith(f"{margin}That was was")
    assert lines[begin + 6].startswith(f"{margin}was was")
    assert lines[-2:] == [f"{margin}" + lines[-2].strip(), ""]
    assert lines[-2].endswith("all.")


def test_bytes_that_are_no_text_are_no_reason_to_end(tmp_path: Path) -> None:
    """They are read as the sign for what cannot be read."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "--chat", "--directory", str(tmp_path)],
        input=b"count to 2 \xff\xfe\n",
        capture_output=True,
        env={**os.environ, "RUNJOURNAL_DEMO_PACE": "0.02", "PYTHONIOENCODING": "utf-8"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "agent 1 2" in squeezed(done.stdout.decode())
