"""The default store: one SQLite file, in WAL mode.

`store` has the methods, `connections` the locks, transactions and snapshots; `database_file` opens and upgrades a file,
`look` reads one without changing it, and `urls` reads URLs.
"""

from .store import SqliteStore
from .urls import look_at, open_url, path_of

__all__ = ["SqliteStore", "look_at", "open_url", "path_of"]
