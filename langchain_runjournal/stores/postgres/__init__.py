"""The store for several machines: one schema of a Postgres database.

`store` has the verbs, `connections` the connections and forks; `opening` checks a server and migrates its schema, `address`
reads URLs, and `listening` notices what other processes write.
"""

from ...errors import ExtraMissing

try:
    import psycopg  # noqa: F401
except ImportError as error:
    raise ExtraMissing(what='RunJournal("postgresql://...")', package="psycopg", extra="postgres") from error

from .store import PostgresStore
from .urls import exists, look_at, open_url, path_of

__all__ = ["PostgresStore", "exists", "look_at", "open_url", "path_of"]
