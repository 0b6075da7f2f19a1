"""The default store: one SQLite file, in WAL mode.

`store` has the methods, `connections` the locks, transactions and snapshots; `database_file` opens and upgrades a file, and
`urls` reads URLs.
"""

from .store import SqliteStore
from .urls import open_url, path_of

__all__ = ["SqliteStore", "open_url", "path_of"]
