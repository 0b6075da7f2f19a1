"""Pure: the dialect of the AI SDK's `useChat`: runs as UI message streams, and threads as UI messages."""

from __future__ import annotations

from .projector import AI_SDK, message_id

__all__ = ["AI_SDK", "message_id"]
