"""What README and docs say is true: every snippet runs, every link leads somewhere, every name exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal
from langchain_runjournal.errors import RunJournalError
from langchain_runjournal.events import KINDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_snippet_runs(page: Path, tmp_path: Path) -> None:
    """One after the other in one directory, as a reader would."""
    for snippet in snippets(page):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr


TESTS = [snippet for snippet in snippets(ROOT / "docs" / "testing.md") if "def test_" in snippet]


@pytest.mark.parametrize("snippet", TESTS, ids=lambda snippet: re.findall(r"def (test_\w+)", snippet)[0])
def test_a_test_that_is_shown_passes_with_pytest_alone(snippet: str, tmp_path: Path) -> None:
    """As a reader runs it who has no plugin for asynchronous tests."""
    (tmp_path / "test_shown.py").write_text(snippet)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", "."],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.search(r"\b1 passed\b", done.stdout), done.stdout
    assert done.returncode == 0, done.stdout


def test_a_stop_is_tested_in_all_three_places() -> None:
    """In mid-sentence, in a thread, among tools: each is shown with a test of its own."""
    assert len(TESTS) == 3


def test_the_first_example_comes_early_and_works(tmp_path: Path) -> None:
    """It is there by line 20, and prints what it promises."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines.index("```python") < 20
    done = subprocess.run(
        [sys.executable, "-c", snippets(ROOT / "README.md")[0]], cwd=tmp_path, capture_output=True, text=True
    )
    said = "Stop loses nothing "
    # The model may have said a word more than the consumer has looked at.
    thread = rf"human: Hello\nai: {said}[ a-z]*\(cut off\)\nhuman: Continue\nai: Where was I\? Here\."
    assert re.fullmatch(rf"{said}\n{thread}", done.stdout)
    assert done.stderr == ""
    assert {path.name for path in tmp_path.iterdir()} == {"runs.db", "threads.db"}
    with RunJournal(tmp_path / "runs.db") as journal:
        assert journal.runs()[-1].cause == "stop"  # as the example says: the user has pressed Stop


def test_the_three_lines_are_enough() -> None:
    """The diff at the top is Python, adds three lines and takes none away; the graph that it leaves records its runs."""
    diff = re.findall(r"^```diff\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[0]
    assert [line[:1] for line in diff.splitlines() if line[:1] not in {" ", ""}] == ["+", "+", "+"]
    builder = StateGraph(MessagesState).add_node("answer", lambda _: {"messages": [("ai", "Hello")]})
    program: dict[str, Any] = {"builder": builder.add_edge(START, "answer"), "saver": InMemorySaver()}
    exec(re.sub(r"^[+ ]", "", diff, flags=re.M).replace("runs.db", ":memory:"), program)
    with program["journal"] as journal:
        program["agent"].invoke({"messages": [("user", "Hi")]}, {"configurable": {"thread_id": "t"}})
        assert [(run.name, run.status) for run in journal.runs()] == [("agent", "completed")]


def test_the_guarantees_are_a_table() -> None:
    """What is durable when."""
    text = (ROOT / "README.md").read_text()
    assert "## What is durable when" in text
    assert text.partition("## What is durable when")[2].count("\n|") > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links between pages of this repository."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_is_a_heading(page: Path) -> None:
    """A link to a section leads to a heading of that page."""
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert anchor in anchors(linked), f"{target}#{anchor}"


def test_every_kind_is_documented() -> None:
    """The list of kinds in the docs is the list in the code."""
    section = (ROOT / "docs" / "design.md").read_text().partition("## Kinds of events")[2].split("\n\n")[1]
    assert set(re.findall(r"`([a-z.]+)`", section)) == KINDS


def test_named_errors_exist() -> None:
    """An error that a page names is one that can be caught."""
    from langchain_runjournal import errors

    named = {name for page in PAGES for name in re.findall(r"`([A-Z][A-Za-z]+)`", page.read_text())}
    for name in named & {"WriteFailed", "RunFenced", "FlushTimeout", "JournalClosed", "RunNotFound"}:
        assert issubclass(getattr(errors, name), RunJournalError)
    assert {"WriteFailed", "RunFenced"} <= named


def test_everything_can_be_imported_without_the_extras() -> None:
    """`import *` takes what is there, and who asks for the guard is told what to install."""
    program = """
import sys
sys.modules["langchain"] = None
from langchain_runjournal import *
assert RunJournal and repair_tool_pairs and "ToolPairGuard" not in globals()
try:
    from langchain_runjournal import ToolPairGuard
except ImportError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 'pip install "langchain-runjournal[agent]"' in done.stdout


def test_each_guarantee_has_a_name_of_its_own() -> None:
    """By which its tests can be found: the first column of each table of guarantees."""
    section = (ROOT / "README.md").read_text().partition("\n## What is guaranteed\n")[2].partition("\n## ")[0]
    tables = [table.splitlines()[2:] for table in re.findall(r"^\| guarantee \|.*\n(?:\|.*\n)+", section, re.M)]
    names = [re.match(r"\| \*\*(.+?)\*\* \|", row) for rows in tables for row in rows]
    assert len(tables) == 4
    assert None not in names
    assert len({name[1] for name in names if name}) == len(names) > 20


def test_the_readme_is_short_and_names_every_page() -> None:
    """What does not fit into 200 lines stands in docs/, one link away."""
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 200
    assert {str(page.relative_to(ROOT)) for page in PAGES[1:]} <= set(re.findall(r"\]\(([^)#]+)\)", text))


def test_every_make_target_in_the_readme_exists() -> None:
    """And the other way round: the ones that a user needs are named."""
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test", "bench"} <= named
    for target in named & set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text())) - {"and"}:
        assert re.search(rf"^{target}:", makefile, re.M), target


def make(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    # As if it were the first make: this may itself be `make test`, which hands on what it was told.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", "-C", ROOT, *arguments], env=env, capture_output=True, text=True, timeout=60)


def interpreter(path: Path, is_enough: bool) -> Path:
    """Something that says which interpreter it is, and whether that is enough."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncase $2 in *exit*) exit {0 if is_enough else 1};; esac\necho {path}\n")
    path.chmod(0o755)
    return path


def test_a_python_that_is_too_old_is_refused_in_one_line(tmp_path: Path) -> None:
    """Before anything is made of it, and with what to do."""
    old, place = interpreter(tmp_path / "python3.9", is_enough=False), tmp_path / "environment"
    done = make("demo", f"PYTHON={old}", f"VENV={place}")
    said = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert said == [
        f"Python 3.10 or later is required, and {old} is older or missing. Choose one: make demo PYTHON=python3.12"
    ]
    assert done.returncode != 0
    assert not place.exists()


def test_an_environment_of_another_interpreter_is_made_anew(tmp_path: Path) -> None:
    """Where one is named; otherwise what is there is used."""
    place = tmp_path / "environment"
    there = interpreter(place / "bin" / "python", is_enough=True)
    (place / ".ready-demo").touch()
    new = interpreter(tmp_path / "python3.12", is_enough=True)
    assert f"{new} -m venv --clear {place}" in make("-n", "demo", f"PYTHON={new}", f"VENV={place}").stdout
    assert "venv --clear" not in make("-n", "demo", f"PYTHON={there}", f"VENV={place}").stdout


def test_a_demonstration_installs_what_it_shows(tmp_path: Path) -> None:
    """And nothing to work on it with: no group of pyproject.toml."""
    place = tmp_path / "environment"
    assert "--group" not in make("-n", "demo", f"VENV={place}").stdout
    assert "--group" in make("-n", "test", f"VENV={place}").stdout
