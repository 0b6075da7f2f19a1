"""A process with one run that goes on and on: `python -m bench._long_run PATH trace|plain COUNT...`."""

from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
from pathlib import Path

from langchain_runjournal import RunJournal

from ._load import WORDS, new_id, start, token


def main(path: Path, trace: bool, counts: list[int]) -> None:
    """What the process and the disk hold after so and so many tokens."""
    if trace:
        tracemalloc.start()
    done = 0
    with RunJournal(path) as journal:
        run_id, call_id = new_id(), new_id()
        journal.append(start(run_id))
        for count in counts:
            _pace(journal, run_id, call_id, count - done)
            done = count
            private = _private()  # with all that waits for the writer, which the flush takes away
            journal.flush()
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] if trace else 0
            _tell(path, tokens=done, private=max(private, _private()), traced=traced)
    _tell(path, tokens=done, private=_private(), traced=0)


def _pace(journal: RunJournal, run_id: str, call_id: str, count: int) -> None:
    """Some 15,000 tokens a second: the writer keeps up, and a hundred thousand are done while one watches."""
    for number in range(count):
        journal.append(token(run_id, call_id, WORDS[number % len(WORDS)]))
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
    main(Path(sys.argv[1]), sys.argv[2] == "trace", [int(count) for count in sys.argv[3:]])
