"""Every cell, or those that are named by words in their name: `python -m tests.providers anthropic stop`.

Exits with 1 if one is broken: neither whole, nor excused for a reason that `_verdict.py` names.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import time
from pathlib import Path

from tests.providers._cells import MODES, RETRIES, controls, matrix, sample
from tests.providers._clients import CLIENTS
from tests.providers._many import Verdicts, play_all


def table(found: Verdicts) -> str:
    """Whole cells of all, by client and mode; in brackets those that cannot be whole."""
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for cell, (verdict, _) in found.items():
        for row in (cell.client if not cell.then else "a switch of provider", "all"):
            counts[row, cell.mode][verdict] += 1
    modes = [mode for mode in (*MODES, *RETRIES) if any(("all", mode) == key for key in counts)]
    rows = [name for name in (*CLIENTS, "a switch of provider", "all") if any((name, mode) in counts for mode in modes)]
    lines = ["| whole of all (excused) | " + " | ".join(modes) + " |", "|---|" + "---|" * len(modes)]
    lines += [f"| {name} | " + " | ".join(_field(counts[name, mode]) for mode in modes) + " |" for name in rows]
    return "\n".join(lines)


def _field(count: collections.Counter[str]) -> str:
    excused = f" ({count['excused']})" if count["excused"] else ""
    return f"{count['whole']:,} of {count.total():,}{excused}" if count else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.providers", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cells whose name has all of these")
    parser.add_argument("--sample", type=int, help="a part of the matrix of about this size")
    parser.add_argument("--controls", action="store_true", help="the same threads, and nothing is cut")
    parser.add_argument("--json", type=Path, help="a file for the verdict of each cell")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("-v", action="store_true", help="say what is wrong with each cell that is broken")
    options = parser.parse_args()
    cells = [
        one
        for one in (controls() if options.controls else matrix())
        if CLIENTS[one.client].installed and (not one.then or CLIENTS[one.then].installed)
    ]
    cells = sample(cells, options.sample) if options.sample else cells
    cells = [one for one in cells if all(word in str(one) for word in options.words)]
    began = time.monotonic()
    found = play_all(cells, options.v, options.jobs)
    if options.json:
        options.json.write_text(
            json.dumps({str(cell): verdict[0] for cell, verdict in found.items()}, indent=1, ensure_ascii=False)
        )
    print(table(found))
    counts = collections.Counter(verdict for verdict, _ in found.values())
    excused, broken = counts["excused"], counts["broken"]
    print(f"\n{counts['whole']:,} of {len(found):,} cells are whole, {excused:,} cannot be, {broken:,} are broken.")
    print(f"It took {time.monotonic() - began:.0f} s.\n")
    for verdict in ("excused", "broken"):
        why = collections.Counter(
            _kind(reason) for one, reasons in found.values() if one == verdict for reason in set(reasons)
        )
        for kind, count in why.most_common(60):
            print(f"{verdict:8}{count:6,}  {kind}")
    return 1 if counts["broken"] else 0


def _kind(reason: str) -> str:
    """A reason without what is of one cell only."""
    return re.sub(r"[\w-]*\d{3,}|'[^']*'|\{.*\}|\[.*\]|\d+", "…", reason)[:180]


if __name__ == "__main__":
    sys.exit(main())
