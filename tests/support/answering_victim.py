"""A program with helpers that is killed.

python -m tests.support.answering_victim DB SAVER PROGRAM STEP MOMENT DURABILITY RUN_ID
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import UUID

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_runjournal import RunJournal
from tests.support.answering import Desk, ask, attached, beside, config, ended_in


async def main(db: str, saver: str, program: str, step: str, moment: str, durability: Any, run_id: str) -> None:
    async with AsyncSqliteSaver.from_conn_string(saver) as checkpoints:
        desk, journal = Desk(), RunJournal(db)
        graph = attached(program, desk, journal, checkpoints)
        desk.kills, desk.cut, desk.beside = True, (step, moment), beside(program, step)
        desk.ended = ended_in(journal, UUID(run_id))
        await graph.ainvoke(ask("hi"), config("t", UUID(run_id)), durability=durability)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
