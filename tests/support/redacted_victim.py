"""A redacted agent that is going to be killed in the middle of a secret.

python -m tests.support.redacted_victim DB SECRET
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessageChunk

from langchain_runjournal import JournalCallbackHandler, RunJournal
from langchain_runjournal.redact import patterns
from tests.support.agents import Scripted

RUN_ID = "6b0b3c5e-0000-4000-8000-000000000001"


def main(db: Path, secret: str) -> None:
    journal = RunJournal(db, redact=patterns([r"sk-[a-z0-9]{20}"]))
    store: Any = journal._core.store

    def wait() -> None:
        print("said", flush=True)
        sys.stdin.read()

    def fail(*_: Any) -> None:
        raise OSError("nothing can be stored")

    store.append = fail
    said = [f"The key {secret}, then ", secret[:9], secret[9:15]]
    model = Scripted(scripts=[[*(AIMessageChunk(content=one) for one in said), wait]])
    config: Any = {"callbacks": [JournalCallbackHandler(journal)], "run_id": RUN_ID}
    for _ in model.stream(f"Keep {secret}.", config):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
