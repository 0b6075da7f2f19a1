"""A process with one long live run: `python -m bench._long_run PATH trace|plain append|handler COUNT...`."""

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
    """Report the memory of the process and the size of the files after each of the counts of tokens."""
    begin = _handled if through == "handler" else _appended
    if trace:
        tracemalloc.start()
    done = 0
    with RunJournal(path) as journal:
        take = begin(journal)
        for count in counts:
            _pace(take, count - done)
            done = count
            private = _private()  # before the flush, so that it includes the events that wait for the writer
            journal.flush()
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] if trace else 0
            _tell(path, tokens=done, private=max(private, _private()), traced=traced)
        del take  # drops the handler, which ends a captured run
    _tell(path, tokens=done, private=_private(), traced=0)


def _appended(journal: RunJournal) -> Take:
    """Begin a run of events that the bench appends itself."""
    run_id, call_id = new_id(), new_id()
    journal.append(start(run_id))
    return lambda text: journal.append(token(run_id, call_id, text))


def _handled(journal: RunJournal) -> Take:
    """Begin a captured run that drops each chunk after the handler has seen it; LangChain itself would keep all chunks."""
    # Imported here, so that the memory of the other kind of run does not include LangChain.
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
    """Send about 15,000 tokens a second: the writer keeps up, and 100,000 tokens take seven seconds."""
    for number in range(count):
        take(WORDS[number % len(WORDS)])
        if number % 20 == 19:
            time.sleep(0.001)


def _private() -> int:
    """Return the private memory of this process in bytes, without the mapped spool, which belongs to the page cache."""
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
