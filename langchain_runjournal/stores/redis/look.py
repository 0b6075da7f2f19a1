"""A look at a store in Redis that writes no key: opening the store for work tries out commands that write."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...errors import StoreFailed, StoreTooNew, StoreUnusable
from .handle import FORMAT
from .keys import Keys
from .server import Server
from .settings import Settings
from .store import RedisStore

_HINT: Final = "Give the URL of a journal, with its ?prefix= if it has one"


class RedisLook(RedisStore):
    """A store in Redis that exists, read and never written."""

    missed: str | None = None

    def __init__(self, settings: Settings) -> None:
        self.url = settings.url
        self.path: Path | None = None
        self.busy_timeout = settings.busy_timeout
        self._settings = settings
        self._keys = Keys(settings.prefix)
        self._server = Server(settings)
        try:
            store_id, number = self._server.call(b"HMGET", self._keys.store, b"id", b"format")
            if store_id is None:
                raise StoreUnusable(url=self.url, reason="it holds no journal", hint=_HINT)
            if int(number or 0) > FORMAT:
                raise StoreTooNew(path=self.url, found=int(number), known=FORMAT)
            self.store_id = bytes(store_id)
        except BaseException:
            self._server.close()
            raise
        self._server.opening = False
        self._begin()

    def _start_again(self, found: bytes) -> None:
        """Raise `StoreFailed`: the server was emptied meanwhile, and a look begins no new store there."""
        raise StoreFailed(path=self.url, reason="the server was emptied meanwhile", hint=_HINT)
