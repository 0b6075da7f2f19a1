"""The process that the demonstration kills: it answers, with a journal and without one, until it gets SIGKILL.

python -m langchain_runjournal.demo.victim DIRECTORY THREAD PACE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path

from .agent import PLAN
from .side_by_side import Heard, open_pair


def report(what: str, words: str) -> None:
    """Write what the user sees to stdout, as a line of JSON that the parent process reads."""
    sys.stdout.write(json.dumps([what, words]) + "\n")
    sys.stdout.flush()


def exit_with_parent() -> None:
    """End this process when the parent closes its end of stdin."""
    sys.stdin.read()
    os._exit(3)


async def answer(directory: Path, thread_id: str, pace: float) -> None:
    """Answer on both sides at once, as soon as the parent process writes a line."""
    async with open_pair(directory, pace) as pair:
        report("ready", "")
        await asyncio.to_thread(sys.stdin.readline)
        threading.Thread(target=exit_with_parent, daemon=True).start()
        await asyncio.gather(*await pair.say(thread_id, PLAN, (Heard(), Heard(report))))


if __name__ == "__main__":
    asyncio.run(answer(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
