"""Readers in a process of their own: read a run in a fresh interpreter, and follow runs from another process.

`python -m bench._reader once HOW PATH RUN_ID` or `python -m bench._reader follow PATH`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from langchain_runjournal import Event, RunJournal

Reader = Callable[[str], Sequence[Any]]


def digest(texts: Iterable[str]) -> str:
    """Return a digest with which to compare what two readers have read."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


# --- once -------------------------------------------------------------------------------------------------------------


def _once(how: str, path: str, run_id: str) -> None:
    """Read a run once in one way. The time excludes the start of the interpreter, its imports and opening the file."""
    began = time.perf_counter()
    with ExitStack() as stack:
        read = _WAYS[how](stack, path)
        opened = time.perf_counter()
        found = read(run_id)
        took = time.perf_counter() - opened
        datas = [one.data if isinstance(one, Event) else one[5] for one in found]
    texts = [data.get("text", "") for data in datas]
    _tell({"open": opened - began, "read": took, "events": len(found), "digest": digest(texts)})


def _by_read(stack: ExitStack, path: str) -> Reader:
    return stack.enter_context(RunJournal(path)).read


def _by_page(stack: ExitStack, path: str) -> Reader:
    journal = stack.enter_context(RunJournal(path))

    def read(run_id: str) -> list[Event]:
        events: list[Event] = []
        while page := journal.read(run_id, after=len(events), limit=500):
            events += page
        return events

    return read


def _by_follow(stack: ExitStack, path: str) -> Reader:
    journal = stack.enter_context(RunJournal(path))
    return lambda run_id: list(journal.follow(run_id))


def _by_rows(stack: ExitStack, path: str) -> Reader:
    con = stack.enter_context(closing(sqlite3.connect(path)))

    def read(run_id: str) -> list[tuple[Any, ...]]:
        rows = con.execute("SELECT * FROM events WHERE run_id = ? ORDER BY seq", (run_id,))
        return [(*row[:5], json.loads(row[5])) for row in rows]

    return read


def _by_lines(stack: ExitStack, path: str) -> Reader:
    def read(run_id: str) -> list[Any]:
        with Path(path).open() as file:
            return [json.loads(line) for line in file]

    return read


_WAYS = {"read": _by_read, "page": _by_page, "follow": _by_follow, "rows": _by_rows, "lines": _by_lines}


# --- follow -----------------------------------------------------------------------------------------------------------


def _follow(path: str) -> None:
    """For each run id on stdin, report the delays of its tokens. The text of a token is the time of its append."""
    with RunJournal(path) as journal:
        _tell("ready")
        for line in iter(sys.stdin.readline, ""):
            verb, _, run_id = line.strip().partition(" ")
            _tell("go")
            texts = _tokens(journal, run_id) if verb == "follow" else iter(sys.stdin.readline, "end\n")
            _tell([time.monotonic_ns() - int(text) for text in texts])


def _tokens(journal: RunJournal, run_id: str) -> Iterator[str]:
    return (event.data["text"] for event in journal.follow(run_id) if event.kind == "llm.ai.delta")


def _tell(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "once":
        _once(*sys.argv[2:])
    else:
        _follow(*sys.argv[2:])
