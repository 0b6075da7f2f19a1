"""The process that is killed: it answers, with a journal and without one, until somebody ends it with SIGKILL.

python -m langchain_runjournal.demo._killed DIRECTORY THREAD PACE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path

from ._agent import PLAN
from ._sides import Heard, open_pair


def tell(what: str, words: str) -> None:
    """What the user sees goes to whoever has started us."""
    sys.stdout.write(json.dumps([what, words]) + "\n")
    sys.stdout.flush()


def leave_with_parent() -> None:
    """Nobody reads what we say any more."""
    sys.stdin.read()
    os._exit(3)


async def answer(directory: Path, thread_id: str, pace: float) -> None:
    """Answer on both sides at once."""
    async with open_pair(directory, pace) as pair:
        tell("ready", "")
        await asyncio.to_thread(sys.stdin.readline)
        threading.Thread(target=leave_with_parent, daemon=True).start()
        await asyncio.gather(*await pair.say(thread_id, PLAN, (Heard(), Heard(tell))))


if __name__ == "__main__":
    asyncio.run(answer(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
