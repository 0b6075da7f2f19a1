"""What `runjournal doctor` finds out about a journal without changing it: its files, its runs, its spools."""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from ..common.file_access import exposure, is_locked
from ..common.masked_urls import masked
from ..errors import InvalidArgument, NotADatabase, StoreIsDirectory, UnknownStore
from ..events import CAUSES, GRAPH, PROBLEM, Run, RunStatus
from ..journal.ownership import certain
from ..journal.spool import spool_files
from ..journal.spool_place import places_of
from ..stores import Owner, exists, is_on_server, path_of
from ..stores.look import Look, look_at
from .doctor_kinds import OTHER, about, kind_of, shown_id

_MOST: Final = 10_000
"""Runs that are counted: a journal may have millions."""
_LISTED: Final = 20
_ERRORS: Final = 10
_SIDES: Final = ("", "-wal", "-shm", "-journal")
_STATE: Final = {"alive": "alive", "gone": "dead", None: "unknown"}
State = Literal["fine", "missing", "empty", "unreadable"]


def journal_facts(url: str, busy_timeout: float | None, spool_dir: str | None) -> dict[str, Any]:
    """Return what there is to know about a journal. Nothing in it is a word of a user or of a model, and no password.

    Raises `UnknownStore` or `InvalidArgument` for a URL that names no journal.
    """
    path = None if is_on_server(url) else path_of(url)
    facts: dict[str, Any] = {
        "url": at_home(masked(url)),
        "resolved": masked(url) if path is None else f"sqlite:///{quote(Path(os.path.realpath(path)).as_posix())}",
        "kind": "file" if path is not None else masked(url).partition(":")[0],
        "state": "fine",
        "error": None,
        **({} if path is None else _file_facts(path)),
        "missed": None,
        "runs": None,
        "unsettled": [],
        "errors": [],
        "spools": [],
        "spool_dir": None if spool_dir is None else {"path": at_home(spool_dir), "exists": os.path.isdir(spool_dir)},
    }
    owners: dict[str, Owner] | None = None
    store_id: bytes | None = None
    try:
        facts["state"] = _state(url, path, busy_timeout)
        if facts["state"] == "fine":
            look = look_at(url, busy_timeout=busy_timeout)
            try:
                store_id = look.store_id
                owners = {owner.owner_id: owner for owner in look.owners()}
                facts |= _run_facts(look, owners)
            finally:
                look.close()
    except (UnknownStore, InvalidArgument):
        raise
    except Exception as exc:  # noqa: BLE001 - whatever a damaged journal leads to, the rest of the report helps
        facts |= {"state": "unreadable", "error": about(exc)}
    facts["spools"] = list(_spool_facts(path, store_id, spool_dir, owners))
    return facts


def at_home(text: str) -> str:
    """Return a path or a URL with `~` in place of the user's home directory, whose name is often that of a person."""
    home = os.path.expanduser("~")
    return re.sub(rf"{re.escape(home)}(?=/|$)", "~", text) if len(home) > 1 else text


def _state(url: str, path: Path | None, busy_timeout: float | None) -> State:
    if path is None:
        return "fine" if exists(url, busy_timeout=busy_timeout) else "missing"
    if not path.exists():
        return "missing"
    if path.is_dir():
        raise StoreIsDirectory(path=str(path))
    if not path.is_file():
        raise NotADatabase(path=str(path), reason="it is not a regular file")
    if not path.stat().st_size:
        return "empty"
    return "fine"


# --- files ------------------------------------------------------------------------------------------------------------


def _file_facts(path: Path) -> dict[str, Any]:
    directory = path.parent
    if not directory.is_dir():
        return {"files": [], "directory": None}
    free = shutil.disk_usage(directory).free
    wide = exposure(directory)
    access = _access(directory) or {}
    about_it = {"path": at_home(str(directory.resolve())), "free": free, **access, "exposed": wide is not None}
    beside = [Path(f"{path}{side}") for side in _SIDES]
    files = [{"name": one.name, **found} for one in beside if not one.is_dir() and (found := _access(one)) is not None]
    return {"files": files, "directory": about_it}


def _access(path: Path) -> dict[str, Any] | None:
    """Return size and permissions of a file, and whose it is; None if it has just been deleted. It is not opened."""
    try:
        found = path.stat()
        shared = bool(path.parent.stat().st_mode & stat.S_ISGID)
    except FileNotFoundError:
        return None
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    owner = "this user" if mine else "root" if found.st_uid == 0 else "another user"
    mode = stat.S_IMODE(found.st_mode)
    return {
        "mode": f"{mode:03o}",
        "owner": owner,
        "size": found.st_size,
        "exposed": bool(mode & (0o007 if shared else 0o077)),
    }


# --- runs -------------------------------------------------------------------------------------------------------------


def _run_facts(look: Look, owners: Mapping[str, Owner]) -> dict[str, Any]:
    now = time.time()
    runs = look.runs(thread_id=None, status=None, limit=_MOST + 1)
    counted = runs[:_MOST]
    unsettled = look.unsettled(thread_id=None)
    open_runs = [(run, why) for run in unsettled if (why := _why(run, owners)) is not None]
    return {
        "missed": look.missed,
        "runs": {
            "counted": len(counted),
            "all": len(runs) <= _MOST,
            "by_status": dict(Counter(str(run.status) for run in counted)),
            "of_attached_graphs": sum(GRAPH in run.metadata for run in counted),
            "given_up": sum(run.given_up for run in counted),
            "lost_events": sum(run.lost for run in counted),
            "running": sum(run.status == RunStatus.RUNNING for run in unsettled)
            - sum(not run.ended for run, _ in open_runs),
        },
        "owners": dict(Counter(_STATE[certain(owner)] for owner in owners.values())),
        "unsettled_total": len(open_runs),
        "unsettled": [
            {
                "run_id": shown_id(run.run_id),
                "status": str(run.status),
                "cause": None if run.cause is None else run.cause if run.cause in CAUSES else OTHER,
                "why": why,
                "graph": run.metadata.get(GRAPH) is not None,
                "age": round(now - run.started_at),
            }
            for run, why in open_runs[-_LISTED:][::-1]
        ],
        "errors": [
            {
                "kind": kind_of(text),
                "of": of,
                "status": str(run.status),
                "age": round(now - (run.ended_at or run.started_at)),
            }
            for run in counted
            for of, text in (("run", run.error), ("settlement", run.problem if PROBLEM not in run.metadata else None))
            if text is not None
        ][:_ERRORS],
    }


def _why(run: Run, owners: Mapping[str, Owner]) -> str | None:
    """Return why a run is not settled; None for one that is at work."""
    owner = owners.get(run.owner or "")
    life = "gone" if owner is None else certain(owner)
    if not run.ended:
        if life == "alive":
            return None
        if life is None:
            return "its owner is on another machine, or cannot be looked up: only its lease tells whether it is alive"
        to_do = (
            "`runjournal recover --graph`, or the next message of its thread"
            if GRAPH in run.metadata
            else "`runjournal recover`"
        )
        return f"its owner is dead: {to_do} ends it"
    if run.problem is None:
        said = "its settlement has not been tried, or was not finished"
    else:
        kind = kind_of(run.problem)
        said = "its settlement failed" + (f" with {kind}" if kind != OTHER else ": `runjournal show` says why")
    return said + ("" if life != "alive" else "; its owner is alive, and tries again with the next message of the thread")


# --- spools -----------------------------------------------------------------------------------------------------------


def _spool_facts(
    path: Path | None, store_id: bytes | None, spool_dir: str | None, owners: Mapping[str, Owner] | None
) -> Iterator[dict[str, Any]]:
    for base in places_of(path, store_id, spool_dir):
        for owner_id, files in spool_files(base).items():
            yield from _spool(files, _life(owner_id, files, owners), damaged=False)
        for kept in sorted(base.parent.glob(f"{glob.escape(base.name)}-spool-*-damaged")):
            yield from _spool([kept], "dead", damaged=True)


def _spool(files: list[Path], owner: str, *, damaged: bool) -> Iterator[dict[str, Any]]:
    access = [found for one in files if (found := _access(one)) is not None]
    if access:  # or else its owner has just deleted it
        yield {
            "owner": owner,
            "files": len(access),
            "size": sum(one["size"] for one in access),
            "exposed": any(one["exposed"] for one in access),
            "damaged": damaged,
        }


def _life(owner_id: str, files: list[Path], owners: Mapping[str, Owner] | None) -> str:
    if owners is not None and owner_id in owners:
        return _STATE[certain(owners[owner_id])]
    if any(is_locked(one) for one in files):
        return "alive"
    return "dead" if owners is not None else "unknown"
