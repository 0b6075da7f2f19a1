"""A run is written, its writer is killed in mid-sentence, and everything that it had shown is read back.

python examples/demo.py
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from langchain_runjournal import Event, RunJournal

ANSWER = (
    "A journal keeps what a program did in the order in which it happened. "
    "Whoever comes back later, after a Stop, a closed tab or a crash, reads on from where they left. "
)

WRITER = """
import itertools, sys, time
from langchain_runjournal import Event, RunJournal

journal = RunJournal(sys.argv[1])
journal.append(Event(run_id="demo", kind="run.start", data={"thread_id": "thread-1", "name": "demo"}))
for word in itertools.cycle(sys.argv[2].split()):
    journal.append(Event(run_id="demo", kind="llm.ai.delta", data={"text": word + " "}, call_id="call-1"))
    print(word, flush=True)  # the user sees it: from here on it must not be lost
    time.sleep(0.03)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "runs.db"
        print("A process streams an answer and journals every token:\n\n    ", end="", flush=True)
        with subprocess.Popen([sys.executable, "-c", WRITER, str(db), ANSWER], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            seen = ""
            for _ in range(25):
                word = writer.stdout.readline().strip()
                seen += word + " "
                print(word, end=" ", flush=True)
            kill = getattr(signal, "SIGKILL", signal.SIGTERM)
            writer.send_signal(kill)
            seen += "".join(line.strip() + " " for line in writer.stdout)  # what was on its way to us
        print(f"\n\nkill -9: the process ended with {writer.returncode}, in mid-sentence and without a word.\n")

        began = time.perf_counter()
        with RunJournal(db) as journal:
            (report,) = journal.recovered or (None,)
            if report is not None:
                print(f"The next one to open the file brought in what was left behind ({report.events} of its events).")
            run = journal.run("demo")
            kept = "".join(event.data["text"] for event in journal.read("demo") if event.kind == "llm.ai.delta")
            took = (time.perf_counter() - began) * 1000
            print(f"Run {run.run_id!r} is {run.status}, with {run.last_seq} events, opened and read in {took:.0f} ms:")
            print(f"\n    {kept}\n")

            claimed = journal.claim("demo")
            print(f"Its owner is gone, so it can be taken over (claimed: {claimed}), continued and ended:")
            journal.append(Event(run_id="demo", kind="run.end", data={"status": "interrupted", "cause": "crash"}))
            last = list(journal.follow("demo", after=run.last_seq))
            print(f"    {last[-1]}")
            print(f"    {journal.run('demo').status}, because of a {journal.run('demo').cause}\n")

        if not kept.startswith(seen):
            sys.exit("Something that was shown is missing. That should not be possible: please report it.")
        print(f"Shown: {len(seen)} characters. Missing: 0.")


if __name__ == "__main__":
    main()
