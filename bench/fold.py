"""The time to fold the deltas of a cut-off call into its partial message, against LangChain's addition of chunks."""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.messages.loading import load
from langchain_runjournal.messages.partial import partial_message
from langchain_runjournal.messages.stream_assembly import Streamed

from ._load import new_id, start, words
from ._models import KINDS, arguments, chunks
from ._stats import seconds, times
from ._tools import Bench, heading, note, table

Deltas = list[Any]

_OURS, _ONCE, _EACH = "ours", "add_ai_message_chunks", "+ of each chunk"
_PATIENCE = 20.0
"""Seconds that adding chunk by chunk may take, estimated from a tenth of the chunks; otherwise it is left out."""
_JUDGED = {("text", 100_000): 5, ("tool calls", 10_000): 10}
_ARGUMENT = 50_000
_CUT = 2
_INTRODUCTION = "I will write the file."


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("fold")
    counts = bench.pick((1_000, 10_000, 100_000), (100, 1_000))
    heading("10. From deltas to the partial message of a cut-off call")
    last: dict[str, float] = {}
    rows = [_row(bench, kind, count, last) for kind in KINDS for count in counts]
    note("In memory. Ours: deltas as read from the journal, to an AIMessage. LangChain: chunk objects to one chunk, in one")
    note("call; and chunk by chunk, once. Left out (-) if it would take minutes.")
    table(["", "chunks", _OURS, _ONCE, _EACH, "to all at once", "to each", "target"], rows)
    _cuts(bench)
    _transcripts(bench, counts)


def _row(bench: Bench, kind: str, count: int, last: dict[str, float]) -> list[str]:
    deltas, given = _deltas(kind, count), list(chunks(kind, count))
    contenders = {
        _OURS: partial(_timed, partial(_fold, deltas)),
        _ONCE: partial(_timed, partial(add_ai_message_chunks, *given)),
    }
    found = bench.interleave(f"fold, {kind}, {count:,}", contenders, bench.pick(5 if count > 10_000 else 9, 2))
    ours, once = found[_OURS].median, found[_ONCE].median
    # In the worst case, ten times as many chunks take a hundred times as long.
    each = last[kind] = _timed(partial(reduce, add, given)) if 100 * last.get(kind, 0) < _PATIENCE else math.inf
    said = ""
    if (kind, count) in _JUDGED:
        said = bench.at_least(f"fold, {count:,} {kind}: to LangChain's", once / ours, _JUDGED[kind, count], times)
    slow = [seconds(each), times(each / ours)] if each < math.inf else ["-", "-"]
    return [kind, f"{count:,}", seconds(ours), seconds(once), slow[0], times(once / ours), slow[1], said]


def _deltas(kind: str, count: int) -> Deltas:
    if kind == "text":
        return list(words(count))
    if kind == "blocks":
        return [{"text": text, "index": 0} for text in words(count)]
    call = {"name": "write_file", "args": "", "id": "call_1", "index": 0, "type": "tool_call_chunk"}
    parts = ('{"text": "', *words(count - 3), '"}')
    return [_INTRODUCTION, {"tool_calls": [call]}, *({"args": args, "index": 0} for args in parts)]


def _fold(deltas: Deltas) -> object:
    folded = partial_message(Streamed(deltas, "call"), run_id="run", call_id="call", reason="stop")
    if folded is None:
        raise AssertionError("nothing was kept")
    return load("run", [folded])


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# --- cuts -------------------------------------------------------------------------------------------------------------


def _cuts(bench: Bench) -> None:
    length = bench.pick(_ARGUMENT, 5_000)
    whole = json.dumps({"path": "notes.txt", "text": "\u00e9t\u00e9 \u20ac " * (length // 22)})
    escape = whole.rindex("\\u")
    cuts = {
        "nowhere": len(whole),
        "before the last brace": len(whole) - 1,
        "in the text": escape,
        "inside an escape": escape + 3,
        "behind its backslash": escape + 1,
        "in the middle": len(whole) // 2,
    }
    ours = {name: partial(_timed, partial(_fold, _argument(whole[:end]))) for name, end in cuts.items()}
    found = bench.interleave("fold, cuts", ours, bench.pick(25, 3))
    uncut, rows = found["nowhere"].median, []
    for name, end in cuts.items():
        once = _timed(partial(add_ai_message_chunks, *_chunks_of(whole[:end])))
        mine = found[name].median
        rows.append([name, seconds(mine), times(mine / uncut), seconds(once), times(once / mine), ""])
    worst = max(one.median for one in found.values()) / uncut
    rows[0][-1] = bench.at_most(f"fold, {length // 1000} kB argument: a cut anywhere, to none", worst, _CUT, times)
    note(f"The argument of a tool call, {len(whole):,} characters in fragments of 20, cut off; LangChain runs once.")
    table(["cut", _OURS, "to uncut", _ONCE, "to ours", "target"], rows)


def _fragments(args: str) -> list[str]:
    return [args[place : place + 20] for place in range(0, len(args), 20)]


def _argument(args: str) -> Deltas:
    return [*_deltas("tool calls", 3)[:2], *({"args": part, "index": 0} for part in _fragments(args))]


def _chunks_of(args: str) -> list[AIMessageChunk]:
    first, *_ = chunks("tool calls", 3)
    return [first, *(arguments(part) for part in _fragments(args))]


# --- from the journal -------------------------------------------------------------------------------------------------


def _transcripts(bench: Bench, counts: tuple[int, ...]) -> None:
    rows = []
    with bench.directory() as directory, RunJournal(directory / "runs.db") as journal:
        for kind in KINDS:
            for count in counts:
                run_id = _written(journal, kind, count)
                read = bench.interleave(
                    f"fold, transcript, {kind}, {count:,}",
                    {
                        "transcript": partial(_timed, partial(journal.transcript, run_id)),
                        "read": partial(_timed, partial(_read, journal, run_id)),
                    },
                    bench.pick(5, 2),
                )
                took = read["transcript"].median
                rows.append([kind, f"{count:,}", seconds(took), seconds(read["read"].median), seconds(took / count), ""])
        note(f"End to end: journal.transcript of a run on SQLite ({_megabytes(directory)}), and journal.read alone.")
    table(["", "deltas", "transcript", "read", "per delta", ""], rows)


def _written(journal: RunJournal, kind: str, count: int) -> str:
    run_id, call_id = new_id(), new_id()
    journal.append(start(run_id))
    about = {"model": "some-model", "role": "answer", "attempt": 1}
    journal.append(Event(run_id=run_id, kind="llm.start", call_id=call_id, data=about))
    for delta in _deltas(kind, count):
        data = {"text": delta} if isinstance(delta, str) else delta
        journal.append(Event(run_id=run_id, kind="llm.ai.delta", call_id=call_id, data=data))
    journal.append(Event(run_id=run_id, kind="run.end", data={"status": "interrupted", "cause": "stop"}))
    journal.flush()
    if not journal.transcript(run_id):
        raise AssertionError("nothing was kept")
    return run_id


def _read(journal: RunJournal, run_id: str) -> int:
    return sum(1 for _ in journal.read(run_id))


def _megabytes(directory: Path) -> str:
    return f"{sum(file.stat().st_size for file in directory.iterdir()) / 1e6:.0f} MB of files"
