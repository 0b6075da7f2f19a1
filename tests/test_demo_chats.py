"""The chat in the terminal: more than one conversation, a keyboard that is not there, and what is pasted."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from langchain_runjournal import RunJournal
from langchain_runjournal.demo import chat
from tests._terminal import Terminal
from tests.test_demo_chat import MODULE, PROMPT, pipe, sit, squeezed

pytestmark = pytest.mark.slow  # a process for each


def say(directory: Path, *lines: str, new: bool = False) -> str:
    """Lines instead of a keyboard; gives what is shown."""
    done = pipe("".join(f"{line}\n" for line in lines), "--directory", str(directory), *(["--new"] if new else []))
    assert (done.returncode, done.stderr) == (0, "")
    return squeezed(done.stdout)


def test_the_conversation_that_was_killed_is_the_one_shown(tmp_path: Path) -> None:
    """Also if another chat, begun at the same time, has spoken after the kill."""
    with sit(tmp_path) as one, sit(tmp_path) as other:
        one.wait_for(PROMPT)
        other.wait_for(PROMPT)
        one.send("/kill count to 900\r")
        one.wait_for(r"■ kill -9")
        assert one.end() == -9
        other.send("count to 3\r")
        other.wait_for(r"agent  1 2 3")
        other.wait_for(PROMPT)
        with sit(tmp_path) as again:
            again.wait_for(r"The last process was killed\. What was cut off is recovered\.")
            again.wait_for(r"you    count to 900\s+agent  1 2 .*✂ cut off here: its process was killed")
            again.wait_for(PROMPT)
            again.send("/quit\r")
            assert again.end() == 0
        other.send("/quit\r")
        assert other.end() == 0


def test_a_new_conversation_does_not_hide_what_is_recovered(tmp_path: Path) -> None:
    """Begun anew after a kill, the chat says how to get to it."""
    killed = pipe("/kill count to 900\n", "--directory", str(tmp_path), pace="0.3")
    assert killed.returncode == -9
    text = say(tmp_path, "/chats", "/chat 1", new=True)
    assert "What was cut off is recovered: /chats leads to it." in text
    assert re.search(r"you /chat 1 you count to 900 agent 1 2 .* ✂ cut off here: its process was killed", text)


def test_every_conversation_can_be_gone_on_with(tmp_path: Path) -> None:
    """They are listed, the newest first, each with its first words, under a number that stays."""
    assert "Nothing has been said yet." in say(tmp_path, "/chats")
    text = say(tmp_path, "count to 3", "/new", "/chats", "count [bold]to\x1b[2J 4", "/chats", "/chat 1", "go on", "/chats")
    assert "A new conversation, kept from its first line on. /chats leads back to the others." in text
    assert "you /chats 1 count to 3 /chat N goes on with one of them. you count [bold]to[2J 4" in text
    assert "you /chats 2 count [bold]to[2J 4 (this one) 1 count to 3 /chat N goes on" in text
    assert "you /chat 1 you count to 3 agent 1 2 3 you go on agent I was at the end" in text
    assert text.count("2 count [bold]to[2J 4 1 count to 3 (this one)") == 1
    with RunJournal(tmp_path / "runs.db") as journal:
        assert [len(journal.runs(thread)) for thread in {run.thread_id: 0 for run in journal.runs()}] == [2, 1]
    assert "you count to 3 agent 1 2 3 you go on" in say(tmp_path), "the one that was spoken in last"


@pytest.mark.parametrize("given", ["", "0", "2", "one", "9" * 5000])
def test_a_conversation_that_is_not_there_is_told(given: str, tmp_path: Path) -> None:
    """And one stays where one was."""
    text = say(tmp_path, "count to 3", f"/chat {given}", "/history")
    assert "Say /chat with one of the numbers that /chats shows." in text
    assert "you /history you count to 3 agent 1 2 3" in text


def test_many_conversations_do_not_fill_the_screen(tmp_path: Path) -> None:
    """The newest are shown; the others are counted, and have numbers too."""
    lines = [line for number in range(1, 24) for line in ("/new", f"Number {number}")]
    text = say(tmp_path, *lines, "/chats", "/chat 1")
    assert "you /chats 23 Number 23 (this one) 22 Number 22" in text
    assert " 4 Number 4 and 3 older ones, from 1 on /chat N goes on" in text
    assert "you /chat 1 you Number 1 agent" in text


def test_an_input_that_is_closed_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives such a program no standard input at all."""
    monkeypatch.setattr(sys, "stdin", None)
    screen = io.StringIO()
    assert chat(Console(file=screen, width=100), directory=tmp_path) == 0
    assert "A chat with a model that follows a script." in screen.getvalue()


@pytest.mark.parametrize("options", [["--chat"], []])
def test_an_input_that_is_closed_is_no_reason_to_fail(options: list[str], tmp_path: Path) -> None:
    """The same in processes, with the demonstration as well."""
    command = f'exec "{sys.executable}" -W error -m {MODULE} --directory "{tmp_path}" {" ".join(options)} <&-'
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "RUNJOURNAL_DEMO_PACE": "0.02"}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def can_paste() -> bool:
    """Whether what is pasted can be told from what is typed: not with libedit, nor with an old readline."""
    try:
        import readline
    except ImportError:
        return False
    return "libedit" not in (readline.__doc__ or "") and getattr(readline, "_READLINE_VERSION", 0) >= 0x0700


def marks_pastes(terminal: Terminal) -> bool:
    """Whether the terminal has last been told to say where a paste begins and ends."""
    return terminal.raw.rfind("\x1b[?2004h") > terminal.raw.rfind("\x1b[?2004l")


@pytest.mark.skipif(not can_paste(), reason="this Python's readline cannot tell")
def test_what_is_pasted_is_one_message(tmp_path: Path) -> None:
    """However many lines it has, at the prompt and while an answer streams; and it can be changed before it is sent."""
    with sit(tmp_path, pace="1") as terminal:
        terminal.wait_for(PROMPT)
        assert marks_pastes(terminal)
        terminal.send("\x1b[200~count to 900\nand\nthen stop\x1b[201~ please\r")
        terminal.wait_for(r"agent  1 2 3 4 5 ")
        assert marks_pastes(terminal)
        terminal.send("\x1b[200~What\nhave you been\nsent?\x1b[201~")
        terminal.wait_for(r"sent\?$")
        terminal.send(" Tell me\r")
        terminal.wait_for(r"■ Stop")
        told = terminal.wait_for(r"I have been sent 3 messages:(.*)\n  you    $")[1]
        assert "- you: count to 900 and then stop please" in squeezed(told)
        terminal.send("/quit\r")
        assert terminal.end() == 0
    assert not marks_pastes(terminal), "the terminal is as it was"
    with RunJournal(tmp_path / "runs.db") as journal:
        assert len(journal.runs()) == 2
