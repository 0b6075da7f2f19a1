"""`runjournal prune`: delete old runs that have ended and are settled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ...common.wording import plural
from ..options import Command, Settings, common
from ..output import Output

_EPILOG = """\b
Examples:
  runjournal prune --older-than 30d --dry-run
  runjournal prune --older-than 12h --keep-last 1000
  runjournal prune --vacuum

It deletes a run that is older and not among the last ones, and never a run that is running, paused or not settled.
"""
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


if TYPE_CHECKING:
    _Seconds = click.ParamType[float, Any]
else:
    _Seconds = click.ParamType  # not generic in every release of click


class Age(_Seconds):
    """An age with its unit: 30d, 12h, 90m, 45s."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert an age to seconds, or fail."""
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not an age: give a number with s, m, h, d or w, for example 30d.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.command(cls=Command, epilog=_EPILOG, short_help="Delete old runs that have ended.")
@click.option("--older-than", type=Age(), metavar="AGE", help="Only runs that ended longer ago: 30d, 12h, 90m, 45s.")
@click.option("--keep-last", type=click.IntRange(0), metavar="N", help="Keep the N runs that ended last.")
@click.option("--dry-run", is_flag=True, help="Print what it would delete, and delete nothing.")
@click.option("--vacuum", is_flag=True, help="Rewrite the file without the free space and the remains of deleted runs.")
@common
@click.pass_obj
def prune(settings: Settings, older_than: float | None, keep_last: int | None, dry_run: bool, vacuum: bool) -> None:
    """Delete old runs that have ended and are settled. Print their ids."""
    if older_than is None and keep_last is None and not vacuum:
        raise click.UsageError("Give --older-than or --keep-last, which limit what is deleted, or --vacuum alone.")
    if dry_run and vacuum:
        raise click.UsageError("Give --dry-run or --vacuum: a dry run writes nothing.")
    output = settings.output
    deletes = older_than is not None or keep_last is not None
    with settings.open() as journal:
        if deletes:
            with output.spinner("Pruning"):
                run_ids = journal.prune(older_than, keep_last, dry_run=dry_run)
            # Before the rewrite: if it fails, these runs are deleted all the same.
            _show(output, run_ids, dry_run)
        if vacuum:
            with output.spinner("Rewriting"):
                journal.prune(vacuum=True)
        if not deletes:
            _show(output, [], dry_run)


def _show(output: Output, run_ids: list[str], dry_run: bool) -> None:
    for run_id in run_ids:
        if output.as_json:
            output.line({"run_id": run_id, "deleted": not dry_run})
        else:
            output.row(run_id)
    output.note(f"{plural(len(run_ids), 'run')} {'would be deleted' if dry_run else 'deleted'}")
