"""Dialects: how the events of a run become frames for a kind of client. Pure.

`protocol` says what a dialect is, `native` sends the events as they are, `ai_sdk` serves `useChat`.
"""

from __future__ import annotations

from typing import Final

from .ai_sdk import AI_SDK
from .native import NATIVE
from .protocol import BlockProjector, Control, Dialect, Payload, Projector

__all__ = ["DIALECTS", "BlockProjector", "Control", "Dialect", "Payload", "Projector"]

DIALECTS: Final[dict[str, Dialect]] = {NATIVE.name: NATIVE, AI_SDK.name: AI_SDK}
"""The dialects by name."""
