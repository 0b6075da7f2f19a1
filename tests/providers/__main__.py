"""Every cell, or those that are named by a word in their name: `python -m tests.providers anthropic stop`."""

from __future__ import annotations

import argparse
import asyncio
import collections
import re
import sys
import time

from ._cells import matrix, sample
from ._clients import CLIENTS
from ._play import Problem, Stage, play


async def run(cells: list, verbose: bool) -> dict:
    stage = Stage()
    found = {}
    for cell in cells:
        try:
            found[cell] = await play(stage, cell)
        except Exception as error:
            found[cell] = [Problem("harness", f"{type(error).__name__}: {error}")]
        if verbose and found[cell]:
            print(cell, *(f"{one.kind}: {one.text}" for one in found[cell]), sep="\n    ", flush=True)
    stage.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.providers", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cells whose name has all of these")
    parser.add_argument("--sample", type=int, help="a part of the matrix of about this size")
    parser.add_argument("-v", action="store_true", help="say what is wrong with each cell that is not whole")
    options = parser.parse_args()
    cells = [one for one in matrix() if CLIENTS[one.client].installed and (not one.then or CLIENTS[one.then].installed)]
    if options.sample:
        cells = sample(cells, options.sample)
    cells = [one for one in cells if all(word in str(one) for word in options.words)]
    began = time.monotonic()
    found = asyncio.run(run(cells, options.v))
    took = time.monotonic() - began
    table = collections.defaultdict(lambda: collections.defaultdict(list))
    for cell, wrong in found.items():
        table[cell.client + (" -> other" if cell.then else "")][cell.mode].append(not wrong)
    modes = list(dict.fromkeys(cell.mode for cell in found))
    print("| client |", " | ".join(modes), "|")
    print("|---|" + "---|" * len(modes))
    for name, row in table.items():
        print(f"| {name} |", " | ".join(f"{sum(row[mode])} of {len(row[mode])}" if row[mode] else "" for mode in modes), "|")
    whole = sum(not wrong for wrong in found.values())
    print(f"\n{whole} of {len(found)} cells are whole, {took:.0f} s")
    kinds = collections.Counter(re.sub(r"[\w-]*\d{3,}|'[^']*'|\{[^}]*\}|\[[^\]]*\]|\d+", "…", f"{one.kind}: {one.text}") for wrong in found.values() for one in wrong)
    for kind, count in kinds.most_common(40):
        print(f"{count:5}  {kind}")
    return 0


sys.exit(main())
