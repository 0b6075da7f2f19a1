"""`runjournal recover --spool`: imports one spool file that a user names, usually a damaged one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import SpoolUnusable
from .core import core_of
from .ownership import living
from .spool_import import SpoolReport, import_spool
from .spool_reader import SpoolScan

if TYPE_CHECKING:
    from .run_journal import RunJournal

_NAME: Final = re.compile(r".+-spool-([0-9a-f]{32})-[0-9]{6}(?:-damaged)?")


def take_spool(journal: RunJournal, path: Path) -> SpoolReport:
    """Store the events that a spool file has and the journal lacks. The file stays. The call is idempotent.

    Raise `SpoolUnusable` for a file that is not a spool of this journal, or whose process may still write it.
    """
    match = _NAME.fullmatch(path.name)
    try:
        scan = SpoolScan(path, is_ours=True)
    except OSError as exc:
        raise SpoolUnusable(path=str(path), reason=exc.strerror or str(exc)) from exc
    # The name of the file says who owns it; if not, an intact header does.
    owner_id = match[1] if match else scan.header.owner_id.hex() if scan.header and scan.header.store_id else None
    if owner_id is None or scan.foreign:
        raise SpoolUnusable(path=str(path), reason="; ".join(scan.problems) or "it is empty")
    dead_owners = core_of(journal).dead_owners
    owner = dead_owners.owner(owner_id)
    if owner_id in living or (owner is not None and not dead_owners.is_gone(owner)):
        raise SpoolUnusable(path=str(path), reason=f"its owner {owner_id} may be alive, and stores the events")
    report = import_spool(core_of(journal).store, owner_id, [path], by_hand=True)
    if report.foreign:
        raise SpoolUnusable(path=str(path), reason=str(report.problem))
    return report
