"""What all methods of the store share: its server, its keys, its identity, and what to do when the server was emptied."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from typing import Any, Final

from ...errors import StoreFailed, StoreTooNew
from .changes import Changes
from .keys import Keys
from .promises import Promise, promise_of
from .scripts import OPEN, Script
from .server import Server
from .settings import Settings

logger = logging.getLogger("langchain_runjournal")

FORMAT: Final = 1
_GONE: Final = "the server has lost the journal: it was emptied, or restarted without its data"


class Handle:
    """One store in a server, open in this process."""

    promise: Promise
    """What the server said when the store was opened: after its crash "always" loses nothing, "everysec" a second of events,
    "no" half a minute, "nothing" all since its last snapshot; "unknown" if it does not say."""

    def __init__(self, settings: Settings) -> None:
        self.url = settings.url
        self.path: Path | None = None
        self.busy_timeout = settings.busy_timeout
        self._settings = settings
        self._keys = Keys(settings.prefix)
        self._server = Server(settings)
        try:
            self.promise = promise_of(self._server)
            self.store_id = self._identity(uuid.uuid4().bytes)
        except BaseException:
            self._server.close()
            raise
        self._server.opening = False
        self._begin()

    def _begin(self) -> None:
        """Set what belongs to one process: at the start, and again in a forked child."""
        self._who = uuid.uuid4().hex.encode()
        self._changes = Changes(self._server, self._keys.changes, self._who)

    def _identity(self, new: bytes) -> bytes:
        """Return the id of the store. If the server has none, it becomes a store with the id `new`."""
        store_id, number = self._server.run(OPEN, self._keys.store, new, FORMAT)
        if int(number or 0) > FORMAT:
            raise StoreTooNew(path=self.url, found=int(number), known=FORMAT)
        return bytes(store_id)

    def _step(self, script: Script, *arguments: Any, tell: bool = True) -> list[Any]:
        """Have the server execute a script. Return what follows the "ok" of its answer.

        The answer begins with "stale" if the script has done nothing, because its arguments no longer fit.
        """
        for _ in range(2):
            who = self._who if tell else b""
            answer: list[Any] = self._server.run(script, self._keys.store, self.store_id, who, *arguments)
            if answer[0] == b"ok":
                return answer[1:]
            if answer[0] != b"gone":
                return answer
            self._start_again(bytes(answer[1]))
        raise StoreFailed(path=self.url, reason=_GONE, hint="Look for what empties the server")

    def _start_again(self, found: bytes) -> None:
        """Go on with an empty server, under the same id: spools name it, and so do the other processes."""
        if not found:
            found = self._identity(self.store_id)
        if found != self.store_id:
            reason = f"{_GONE}, and another journal has begun there"
            raise StoreFailed(path=self.url, reason=reason, hint="Open the journal again")
        logger.error("%s (%s). Runs that had begun are lost, and take no more events; new runs are kept", _GONE, self.url)
        self._forget_all()

    def _forget_all(self) -> None:
        """Drop what the store remembers of the server. For subclasses."""

    def changed(self) -> int:
        """Return how many changes of other writers were seen. This method does no I/O while the blocking reader works."""
        self._server.check_open()
        return self._changes.number()

    def listen(self, wake: Any) -> None:
        """Call `wake` soon after another writer has written."""
        self._server.check_open()
        self._changes.listen(wake)

    def before_fork(self) -> None:
        """Let no connection change hands while the process forks."""
        self._server.before_fork()

    def after_fork(self, *, child: bool) -> None:
        """Go on in the parent. The child gets connections of its own, and a reader at the first need."""
        self._server.after_fork(child=child)
        if child:
            self._begin()

    def close(self) -> None:
        """Close all connections, and end the blocking reader."""
        self._server.close()
        self._changes.close()

    def _json(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()
