"""A process with one run that goes on and on: `python -m bench._long_run PATH trace|plain append|handler COUNT...`."""

from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

from langchain_runjournal import RunJournal

from ._load import WORDS, new_id, start, token

Take = Callable[[str], object]


def main(path: Path, trace: bool, through: str, counts: list[int]) -> None:
    """What the process and the disk hold after so and so many tokens."""
    begin = _handled if through == "handler" else _appended
    if trace:
        tracemalloc.start()
    done = 0
    with RunJournal(path) as journal:
        take = begin(journal)
        for count in counts:
            _pace(take, count - done)
            done = count
            private = _private()  # with all that waits for the writer, which the flush takes away
            journal.flush()
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] if trace else 0
            _tell(path, tokens=done, private=max(private, _private()), traced=traced)
        del take  # which ends a captured run: nobody works on it any more
    _tell(path, tokens=done, private=_private(), traced=0)


def _appended(journal: RunJournal) -> Take:
    """A run of events."""
    run_id, call_id = new_id(), new_id()
    journal.append(start(run_id))
    return lambda text: journal.append(token(run_id, call_id, text))


def _handled(journal: RunJournal) -> Take:
    """A run of a model whose chunks are gone once the handler has seen them. LangChain itself would keep them all."""
    # Not imported by the other kind of run, whose memory it would be.
    from langchain_core.messages import AIMessageChunk, HumanMessage
    from langchain_core.outputs import ChatGenerationChunk

    from langchain_runjournal import JournalCallbackHandler

    handler, run_id = JournalCallbackHandler(journal), uuid.uuid4()
    handler.on_chat_model_start({"name": "bench"}, [[HumanMessage("x")]], run_id=run_id)
    message_id = f"lc_run--{run_id}"

    def take(text: str) -> None:
        chunk = ChatGenerationChunk(message=AIMessageChunk(content=text, id=message_id))
        handler.on_llm_new_token(text, chunk=chunk, run_id=run_id)

    return take


def _pace(take: Take, count: int) -> None:
    """Some 15,000 tokens a second: the writer keeps up, and a hundred thousand are done while one watches."""
    for number in range(count):
        take(WORDS[number % len(WORDS)])
        if number % 20 == 19:
            time.sleep(0.001)


def _private() -> int:
    """Bytes of memory that are this process's alone: not the mapped spool, which is the page cache's."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def _tell(path: Path, **figures: int) -> None:
    disk = {"db": 0, "wal": 0, "spool": 0}
    for file in path.parent.glob(f"{path.name}*"):
        kind = "spool" if "-spool-" in file.name else "wal" if file.name[-4:] in ("-wal", "-shm") else "db"
        disk[kind] += file.stat().st_size
    print(json.dumps({**figures, "disk": disk}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "trace", sys.argv[3], [int(count) for count in sys.argv[4:]])
