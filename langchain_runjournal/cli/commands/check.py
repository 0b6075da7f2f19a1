"""`runjournal check`: look for damage, gaps and open work in a journal."""

from __future__ import annotations

import click

from ...common.wording import plural
from ...journal.check import Problem
from ...journal.check import check as problems_of
from ..options import Command, Settings, common
from ..output import Output

_EPILOG = """\b
Examples:
  runjournal check
  runjournal check --json | jq -r .what

It finds gaps, runs that are not settled, tool calls without results, damage of the file, and files that other users can
read.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Check that the journal is whole.")
@common
@click.pass_obj
def check(settings: Settings) -> int:
    """Check that the journal is whole: one line for each problem, with what to do about it."""
    output = settings.output
    found: list[Problem] = []
    seen = 0, 0

    def advance(done: int, total: int, events: int) -> None:
        nonlocal seen
        seen = done, events
        progress(done, total)

    with settings.open() as journal:
        # On one terminal, the lines would break the progress bar: print them when the bar has gone.
        is_one_place = output.talk.is_terminal and output.out.is_terminal
        with output.progress_bar("Checking") as progress:
            for problem in problems_of(journal, advance):
                found.append(problem)
                if not is_one_place:
                    _print(output, problem)
        for problem in found if is_one_place else ():
            _print(output, problem)
        output.has_reported_damage = any(problem.what == "damage" for problem in found)
    size = f"{plural(seen[0], 'run')}, {plural(seen[1], 'event')}"
    if found:
        output.say(f"runjournal: {plural(len(found), 'problem')} in {size}", "red")
        return 1
    output.say(f"fine: {size}", "green")
    return 0


def _print(output: Output, problem: Problem) -> None:
    if output.as_json:
        output.line({"what": problem.what, "run_id": problem.run_id, "text": problem.text, "hint": problem.hint})
        return
    said = f"{problem.what}: {problem.text.rstrip('.')}. {problem.hint.rstrip('.')}."
    output.row(problem.run_id or "", said)
