"""A writer for tests that kill it. After each append, it notes the number of appends in a file that survives a kill.

python -m tests.support.killed_writer DB LEDGER THREADS TOKENS_PER_SECOND(0: full speed)
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time

from langchain_runjournal import Event, RunJournal

LEDGER = struct.Struct("@Q")


def text_of(thread: int, number: int) -> str:
    return f"{thread}:{number} "


def main(db: str, ledger: str, threads: int, rate: float) -> None:
    with open(ledger, "r+b") as file:
        # As numbers, each written by one store: `struct.pack_into` fills with zeros first, and a kill may come in between.
        returned = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    journal = RunJournal(db)
    run_of = [f"{journal.owner_id}-{thread}" for thread in range(threads)]
    print(*run_of, flush=True)

    def work(thread: int) -> None:
        for number in range(1, 1_000_000_000):
            journal.append(
                Event(
                    run_id=run_of[thread],
                    kind="llm.ai.delta",
                    data={"text": text_of(thread, number)},
                    call_id=f"call-{number // 1000}",
                )
            )
            returned[thread] = number
            if rate:
                time.sleep(1 / rate)

    for thread in range(threads):
        threading.Thread(target=work, args=(thread,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
