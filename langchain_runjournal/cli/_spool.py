"""`runjournal recover --spool`: one spool file, by hand."""

from __future__ import annotations

from pathlib import Path

from ..common.wording import plural
from ..journal.run_journal import RunJournal
from ..journal.spool_by_hand import take_spool
from ._settings import Settings


def recover_spool(settings: Settings, journal: RunJournal, path: Path) -> int:
    """Bring in what a spool file has and the journal lacks, and say what that was. 1 if anything of it could not be had."""
    if not path.exists():  # it was there when the command began
        settings.note(f"{path.name} was whole: opening the journal has brought it in and deleted it")
        return 0
    report = take_spool(journal, path)
    stored = report.found - report.events - report.refused
    if settings.as_json:
        counts = {"found": report.found, "events": report.events, "stored": stored, "refused": report.refused}
        settings.line({"spool": str(path), **counts, "runs": list(report.runs), "problem": report.problem})
    else:
        taken = f"{plural(report.events, 'event')} of {plural(len(report.runs), 'run')} brought in"
        settings.row(
            path.name, f"{taken}, {stored} stored already, {report.refused} refused, of {report.found} that are whole"
        )
        for run_id in report.runs:
            settings.row(run_id, "brought in")
    for problem in (report.problem or "").split("; ") if report.problem else ():
        settings.say(f"runjournal: {problem}", "yellow")
    settings.note(f"{path.name} is left as it is: delete it when you need it no more")
    return 1 if report.problem else 0
