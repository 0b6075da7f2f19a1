"""The command `python -m bench`: measure every figure of the design, side by side in one run."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings

from ._machine import facts
from ._tools import Bench, heading, note, table

SECTIONS = (
    "append",
    "writer",
    "burst",
    "flush",
    "follow",
    "read",
    "kill",
    "memory",
    "capture",
    "fold",
    "settle",
    "guard",
    "attach",
    "start",
    "opening",
    "view",
    "history",
    "postgres",
    "redis",
    "machines",
    "server",
    "langgraph_api",
)


def main() -> int:
    """Run the requested sections. Return 1 if an event was lost that the journal had promised to keep, else 0."""
    options = _options()
    # The bench forks and kills processes on purpose.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    bench = Bench(quick=options.quick, kills=options.kills, seed=options.seed)
    began = time.monotonic()
    heading("The machine")
    for fact in facts():
        note(fact)
    note(f"seed {options.seed}{', --quick: too short for meaningful figures' if options.quick else ''}")
    for name in options.sections or SECTIONS:
        importlib.import_module(f"bench.{name}").run(bench)
    heading("Targets")
    if bench.targets:
        rows = [
            [target.name, target.measured, target.limit, "ok" if target.reached else "MISSED"] for target in bench.targets
        ]
        table(["", "measured", "target", ""], rows)
    if options.quick:
        note("--quick: too short to judge the targets. A few fixed pages and wake-ups dominate so few tokens.")
    note(f"noise: {bench.noise}")
    note(f"total time: {time.monotonic() - began:.0f} s")
    return 1 if bench.lost else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"the sections to run: {', '.join(SECTIONS)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="much smaller, to check that the benchmark itself works")
    parser.add_argument("--kills", type=int, metavar="N", help="how many processes to kill (default: 1,000; quick: 24)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="for the order of the repetitions")
    options = parser.parse_args()
    unknown = sorted(set(options.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"unknown section: {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")
    if options.kills is not None and options.kills < 1:
        parser.error("--kills must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
