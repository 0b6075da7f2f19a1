"""The default store: one SQLite file, in WAL mode.

`store` has the verbs, `connections` the locks, transactions and snapshots; `database_file` opens and upgrades a file.
"""

from .store import SqliteStore

__all__ = ["SqliteStore"]
