"""The file of `-o FILE`: complete or absent, readable by its owner only, and never a file of the journal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from .options import CommandFailed


@contextmanager
def open_output(journal: RunJournal, name: str | None) -> Iterator[BinaryIO]:
    """Yield stdout (`None` or "-"), or a file that appears under its name only when the body has ended without an error."""
    if name is None or name == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    _refuse_journal(journal, path)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:  # a device, for example
            yield file
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # 0600, as the journal has: the file holds what users wrote to a model.
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
        part.replace(path)
    except OSError as exc:
        if exc.filename == os.fspath(part):
            exc.filename = os.fspath(path)  # the user knows only this name
        raise
    finally:
        part.unlink(missing_ok=True)


def _refuse_journal(journal: RunJournal, path: Path) -> None:
    own = core_of(journal).store.path
    if own is None:
        return
    if path.exists() and path.samefile(own):
        raise CommandFailed(f"{path} is the journal itself. Choose another file.")
    # The files that SQLite keeps beside it, and spools that are not imported yet.
    if path.name.startswith(f"{own.name}-") and path.absolute().parent.resolve() == own.parent:
        raise CommandFailed(f"{path} has the name of a file that belongs to the journal. Choose another one.")
