"""Pure: what the URL of a store in Redis says, once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Require: TypeAlias = Literal["always", "everysec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a store. The repr has no password."""

    url: str
    """Without passwords."""
    connection: Any = field(repr=False)
    """The class of the driver's connections."""
    arguments: Mapping[str, Any] = field(repr=False)
    """What the driver needs to connect: also the password."""
    busy_timeout: float = 5.0
    prefix: str = "runjournal"
    retain: int = 0
    """Seconds after which the server deletes a run that is done; 0: never."""
    require: Require | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must stand in no message."""
        names = ("password", "ssl_password")
        return tuple(str(found) for name in names if (found := self.arguments.get(name)))
