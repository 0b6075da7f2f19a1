"""Runs in Redis or Valkey: streams, hashes and sorted sets of plain Redis, without modules.

`store` has the methods, `server` the connections, `scripts` what the server executes as one step, and `urls` reads URLs.
"""

from ...errors import ExtraMissing

try:
    import redis as _driver  # noqa: F401
except ImportError as _missing:
    raise ExtraMissing(what="A journal in Redis", package="redis", extra="redis") from _missing

from .store import RedisStore
from .urls import exists, look_at, open_url, path_of

__all__ = ["RedisStore", "exists", "look_at", "open_url", "path_of"]
