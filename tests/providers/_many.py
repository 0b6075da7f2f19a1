"""Many cells, in several processes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import multiprocessing
import warnings
from typing import TypeAlias

from tests.providers._cells import Cell
from tests.providers._play import Stage, play
from tests.providers._verdict import Outcome, Problem, Verdict, judge

Verdicts: TypeAlias = dict[Cell, tuple[Verdict, list[str]]]


def play_all(cells: list[Cell], verbose: bool, jobs: int) -> Verdicts:
    """The verdict of each cell. One process plays one scene at a time."""
    with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        parts = pool.map(_play_part, [cells[job::jobs] for job in range(jobs)], [verbose] * jobs)
        found = {cell: verdict for part in parts for cell, verdict in part.items()}
    return {cell: found[cell] for cell in cells}


def _play_part(cells: list[Cell], verbose: bool) -> Verdicts:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    return asyncio.run(_play_each(cells, verbose))


async def _play_each(cells: list[Cell], verbose: bool) -> Verdicts:
    stage, found = Stage(), {}
    for cell in cells:
        try:
            found[cell] = judge(cell, await play(stage, cell))
        except Exception as error:
            found[cell] = judge(cell, Outcome([Problem("harness", f"{type(error).__name__}: {error}")]))
        if verbose and found[cell][0] == "broken":
            print("\n    ".join([str(cell), *found[cell][1]]), flush=True)
    stage.close()
    return found
