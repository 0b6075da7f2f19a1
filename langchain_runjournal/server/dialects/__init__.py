"""Dialects: how the events of a run become frames for a kind of client. Pure.

`protocol` says what a dialect is, `native` sends the events as they are.
"""

from __future__ import annotations

from typing import Final

from .native import NATIVE
from .protocol import BlockProjector, Control, Dialect, Payload, Projector

__all__ = ["DIALECTS", "BlockProjector", "Control", "Dialect", "Payload", "Projector"]

DIALECTS: Final[dict[str, Dialect]] = {NATIVE.name: NATIVE}
"""The dialects by name."""
