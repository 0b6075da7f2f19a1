"""Dialects: how the events of a run become frames for a kind of client. Pure.

`protocol` says what a dialect is, `native` sends the events as they are, `ai_sdk` serves `useChat`, `ag_ui` serves
`HttpAgent`.
"""

from __future__ import annotations

from typing import Final

from .ai_sdk import AI_SDK
from .native import NATIVE
from .protocol import BlockProjector, Control, Dialect, Payload, Projector, ThreadProjector

__all__ = ["DIALECTS", "BlockProjector", "Control", "Dialect", "Payload", "Projector", "ThreadProjector"]

DIALECTS: Final[dict[str, Dialect]] = {NATIVE.name: NATIVE, AI_SDK.name: AI_SDK}
"""The dialects of which a stream needs nothing but the run, by name. One of `ag_ui` needs the thread as well."""
