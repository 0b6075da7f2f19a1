"""`make storms`, `python -m tests.storms [STORM ...] [--store KIND] [--count N] [--seed SEED] [--case N] [--jobs N] [--keep
DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import langgraph.checkpoint.sqlite.aio  # noqa: F401 - imported once, before any fork

from langchain_runjournal import ToolPairGuard, attach, start_run  # noqa: F401
from tests.storms import faults, forks, mutations, recoverers, writers
from tests.storms._judge import Found, Storm, run
from tests.support.places import PLACES, start_server

STORMS: dict[str, tuple[Storm, int]] = {
    "writers": (writers.storm, 500),
    "recoverers": (recoverers.storm, 100),
    "forks": (forks.storm, 320),
    "mutations": (mutations.storm, 500),
    "faults": (faults.storm, 500),
}
"""The storms, each with its number of cases. A case of `writers` kills two or three processes, one of `recoverers` five or
six, and one of `forks` forks once or twice."""


OF_FILES = ("mutations",)
"""The storms that need a journal in a file."""


def main(args: Sequence[str] | None = None) -> int:
    """Run storms. Return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.storms", description=__doc__)
    parser.add_argument("storms", nargs="*", metavar="STORM", help=f"of {', '.join(STORMS)}; without one, all")
    parser.add_argument(
        "--store", choices=PLACES, default=PLACES[0], help="where the journal is; on a server, the spool is here"
    )
    parser.add_argument("--count", type=int, help="cases of each storm")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--case", type=int, help="only the case with this number")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="where the files of what went wrong stay")
    given = parser.parse_args(args)
    for name in given.storms:
        if name not in STORMS:
            parser.error(f"unknown storm {name}; choose from {', '.join(STORMS)}")
        if name in OF_FILES and given.store != PLACES[0]:
            parser.error(f"{name} changes the files of a journal, and a server has none")
    root = given.keep or Path(tempfile.mkdtemp(prefix="storms-"))
    root.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_STATE_HOME"] = str(root)  # for the spools
    start_server(given.store)
    print(f"seed {given.seed}", file=sys.stderr)
    gc.freeze()
    wrong = False
    for name in given.storms or [name for name in STORMS if given.store == PLACES[0] or name not in OF_FILES]:
        storm, count = STORMS[name]
        numbers = range(given.case, given.case + 1) if given.case is not None else range(given.count or count)
        found = run(name, storm, numbers, given.seed, given.jobs, root, store=given.store)
        wrong = wrong or bool(found.wrong)
        tell(found, given.seed, root, given.store)
    shutil.rmtree(root / "langchain-runjournal", ignore_errors=True)
    if not wrong and given.keep is None:
        shutil.rmtree(root, ignore_errors=True)
    return int(wrong)


def tell(found: Found, seed: int, root: Path, store: str) -> None:
    """Print the figures as a line of JSON, and the broken promises."""
    took = {"seconds": round(found.seconds), "slowest case": round(found.slowest, 1)}
    print(
        json.dumps({"storm": found.storm, "store": store, "seed": seed, **took, **found.counts, "wrong": len(found.wrong)})
    )
    for number, what in found.wrong:
        print(f"  {found.storm} {number}: {what}")
        print(f"    again: python -m tests.storms {found.storm} --store {store} --seed {seed} --case {number}")
        print(f"    files: {root}/{found.storm}-{number}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
