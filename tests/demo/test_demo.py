"""`make demo` and `runjournal demo`: they cut an agent off three times, and everything they show is true."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from langchain_runjournal import RunJournal
from langchain_runjournal.demo import play, side_by_side, victim_process
from tests.support.terminal import Terminal

MODULE = "langchain_runjournal.demo"
FAST = {"RUNJOURNAL_DEMO_PACE": "0.05"}


def run_demo(directory: Path, width: int) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", MODULE, "--directory", str(directory)],
        env={**env, **FAST, "COLUMNS": str(width), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Its output in a pipe, and the directory with its files."""
    directory = tmp_path_factory.mktemp("demo") / "new"
    done = run_demo(directory, 100)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout, directory


def columns(text: str, scene: int) -> tuple[str, str]:
    """Return the text of the two columns of a scene."""
    part = re.split(r"^[123] · ", text, flags=re.M)[scene]
    rows = [line.split("│")[1:3] for line in part.splitlines() if line.count("│") == 3]
    return " ".join(" ".join(row[0] for row in rows).split()), " ".join(" ".join(row[1] for row in rows).split())


def test_it_is_plain_in_a_pipe(played: tuple[str, Path]) -> None:
    """No escape codes, nothing that moves the cursor, and no line beyond the width."""
    text, _ = played
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert text.count("■ Stop") == 2
    assert max(map(len, text.splitlines()[:-2])) <= 100


def test_a_sentence_is_kept(played: tuple[str, Path]) -> None:
    """Without the journal nothing of the answer is left; with it the half answer is, and the model continues it."""
    without, attached = columns(played[0], 1)
    assert "nothing of the answer" in without
    assert "Go on with what?" in without
    assert re.search(r"agent Begin at the castle .* ✂ cut off You write Go on: the model is sent", attached)
    assert re.search(r"the model is sent you What .* agent Begin .* ✂ cut off you Go on It answers agent … ", attached)


def test_tools_are_kept(played: tuple[str, Path]) -> None:
    """Without the journal two results are lost and the provider refuses; with it the next request has all three."""
    without, attached = columns(played[0], 2)
    assert "the model is sent you Book flight, hotel and car. agent" in without
    assert "you Go on 2 results are gone It is never asked ✗ Refused (error 400): 3 tool requests" in without
    assert attached.count("tool flight booked tool hotel booked tool Interrupted while") == 2
    assert attached.count("◇ filled in") == 2
    assert attached.endswith("It answers agent flight booked, hotel booked. Shall I try the rest?")


def test_a_kill_is_survived(played: tuple[str, Path]) -> None:
    """The demonstration kills a real process, and the next process finds what it had said."""
    text, _ = played
    without, attached = columns(text, 3)
    assert text.count("■ kill -9") == 1
    assert "It ended with -9. The next process recovers 1 message." in text
    assert "nothing of the answer" in without
    assert re.search(r"agent At nine, .* ✂ cut off you Go on It answers agent … ", attached)


def test_the_verdict_is_counted(played: tuple[str, Path]) -> None:
    """The verdict counts what was shown, what was kept of it, and whether the next message works, on both sides."""
    text, directory = played
    shown = re.search(r"Of (\d+) characters shown, kept +0 +(\d+) *\n", text)
    assert shown is not None
    assert shown[1] == shown[2]
    assert re.search(r"Of 2 tools finished, results kept +0 +2 *\n", text)
    assert re.search(r"Of 3 next messages +1 refused +all work *\n", text)
    with RunJournal(directory / "runs.db") as journal:
        partial = [
            message.text
            for run in journal.runs(status="interrupted")
            for message in journal.transcript(run.run_id)
            if message.type == "ai" and not getattr(message, "tool_calls", None)
        ]
    assert sum(map(len, partial)) >= int(shown[1]) > 200


def test_it_ends_with_a_picture(played: tuple[str, Path]) -> None:
    """The last line is the path of a timeline with the three cut-off runs; the one before it is a command."""
    text, directory = played
    more, last = text.splitlines()[-2:]
    assert last.endswith(str(directory / "timeline.html"))
    assert more.endswith(f"runjournal --journal {directory / 'runs.db'} list")
    html = (directory / "timeline.html").read_text(encoding="utf-8")
    with RunJournal(directory / "runs.db") as journal:
        cut = [run for run in journal.runs() if run.status == "interrupted"]
        assert sorted(str(run.cause) for run in cut) == ["crash", "stop", "stop"]
        assert all(run.run_id in html for run in cut)
        assert not any(run.run_id in html for run in journal.runs(status="completed"))


def played_here(directory: Path, width: int = 90) -> tuple[int, str]:
    screen = io.StringIO()
    with redirect_stderr(io.StringIO()) as complaint:
        status = play(Console(file=screen, width=width), directory=directory, pace=0.02)
    return status, screen.getvalue() + complaint.getvalue()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_every_width_is_right(width: int, tmp_path: Path) -> None:
    """Side by side, or one below the other on a narrow screen; never beyond the edge. Twice in one directory works."""
    for _ in range(2 if width == 80 else 1):
        status, text = played_here(tmp_path, width)
        assert status == 0
    lines = text.splitlines()[:-2]
    assert max(map(len, lines)) <= width
    assert sum(line.startswith(" │ without ") for line in lines) == 3
    is_beside = any("without" in line and "with the journal" in line for line in lines if "│" in line)
    assert is_beside == (width > 60)


def test_a_loss_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that loses everything shows in the columns, in the verdict and in the exit code."""

    def attach(graph: Any, journal: RunJournal) -> Any:
        return graph

    monkeypatch.setattr(side_by_side, "attach", attach)
    status, text = played_here(tmp_path)
    assert status == 1
    counted = re.search(r"Of (\d+) characters shown, kept +0 +(\d+) *\n", text)
    assert counted is not None
    # The victim is another process, which does attach: what it has said is found.
    assert 0 < int(counted[2]) < int(counted[1])
    assert re.search(r"results kept +0 +0 *\n", text)
    assert re.search(r"next messages +1 refused +1 refused *\n", text)
    assert "The journal has lost something that was shown." in text


def test_a_loss_of_a_single_word_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeping a part of what was shown is a loss too."""
    send_next = side_by_side.Side.send_next

    async def forgetful(self: Any, thread_id: str, found: side_by_side.Left) -> None:
        await send_next(self, thread_id, found)
        found.sent = [one.model_copy(update={"content": one.text[:-12]}) if one.type == "ai" else one for one in found.sent]

    monkeypatch.setattr(side_by_side.Side, "send_next", forgetful)
    status, text = played_here(tmp_path)
    assert status == 1
    assert "The journal has lost something that was shown." in text


def test_a_victim_that_dies_by_itself_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the victim is dead before the kill, one sentence says so, with what the process wrote to stderr."""
    monkeypatch.setattr(victim_process, "_MODULE", "nothing_of_the_kind")
    status, text = played_here(tmp_path)
    assert status == 1
    last = " ".join(text.splitlines()[-3:])
    assert "had ended before, with exit status 1" in " ".join(last.split())
    assert "No module named nothing_of_the_kind" in " ".join(last.split())


def test_a_pace_that_is_not_a_number_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration reads the variable before it creates a directory."""
    monkeypatch.setenv("RUNJOURNAL_DEMO_PACE", "fast")
    status, text = played_here(tmp_path / "not-made")
    assert status == 1
    assert "RUNJOURNAL_DEMO_PACE must be a number" in text
    assert not (tmp_path / "not-made").exists()


@pytest.mark.slow
def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    """Unless NO_COLOR is set."""
    for env, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Terminal(MODULE, "--directory", str(tmp_path), **FAST, **env) as terminal:
            assert terminal.end() == 0
        assert ("\x1b[1;36m" in terminal.raw) is is_coloured  # cyan
        assert bool(re.search(r"\x1b\[[0-9;]*[34][0-7]m", terminal.raw)) is is_coloured
        assert not re.search(r"\x1b\[[0-9;?]*[A-HJKSTfhln]", terminal.raw), "no cursor moves"


def processes_of(directory: Path) -> list[str]:
    """List the processes with this directory among their arguments, except this one."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(directory) in line and line.split()[0] != str(os.getpid())]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["castle", "monastery"])
def test_ctrl_c_ends_it_quietly(moment: str, tmp_path: Path) -> None:
    """While either process answers: 130, no traceback, and no process is left behind."""
    with Terminal(MODULE, "--directory", str(tmp_path), RUNJOURNAL_DEMO_PACE="0.15") as terminal:
        terminal.wait_for(moment)
        terminal.send("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.text
    assert "Error" not in terminal.text
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_the_victim_ends_with_the_demonstration(tmp_path: Path) -> None:
    """Also if the demonstration itself is killed."""
    with Terminal(MODULE, "--directory", str(tmp_path)) as terminal:
        terminal.wait_for("castle")
        (other,) = [line.split()[0] for line in processes_of(tmp_path) if ".victim " in line]
        terminal.process.kill()
        terminal.end()
    waiting = subprocess.run(["tail", "--pid", other, "-s", "0.05", "-f", os.devnull], timeout=30)
    assert waiting.returncode == 0
    assert processes_of(tmp_path) == []
