"""What has been said in a chat, and what is being said."""

from __future__ import annotations

from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage

from ..messages.loading import is_partial, is_synthetic
from ._screen import Screen, asked, because, clean, told, who

_CUT: Final = "bold yellow"


def show(screen: Screen, messages: list[BaseMessage]) -> None:
    """A conversation, with marks where it was cut off."""
    screen.line("")
    for message in messages:
        if isinstance(message, ToolMessage):
            _show_result(screen, message)
            continue
        if message.type == "human" and message is not messages[0]:
            screen.line("")
        screen.begin(who(message))
        screen.words(message.text)
        if is_partial(message):
            screen.mark(f"✂ cut off here: {because(message)}", _CUT)
        if asks := asked(message):
            screen.mark(f"▸ {asks}", "magenta")
    screen.end()


def _show_result(screen: Screen, message: ToolMessage) -> None:
    if is_synthetic(message):
        screen.rows(screen.marked(*told(message), screen.width - 10), indent=9)
    else:
        sign = ("✗ ", "bold red") if message.status == "error" else ("✓ ", "bold green")
        screen.line(sign, clean(message.text), indent=9)


class Answer:
    """An answer as it comes."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._message: AIMessageChunk | None = None
        self._is_begun = False
        self.words = 0
        """How many words have been shown."""

    def hear(self, chunk: Any) -> None:
        """The next chunk."""
        if isinstance(chunk, ToolMessage):
            _show_result(self._screen, chunk)
            self._is_begun = False
        elif isinstance(chunk, AIMessageChunk):
            self._message = chunk if self._message is None or self._message.id != chunk.id else self._message + chunk
            if chunk.text:
                self._begin()
                self._screen.words(chunk.text)
                self.words += len(chunk.text.split())
            if chunk.chunk_position == "last" and (asks := asked(self._message)):
                self._begin()
                self._screen.mark(f"▸ {asks}", "magenta")

    def _begin(self) -> None:
        if not self._is_begun:
            self._screen.begin("agent")
            self._is_begun = True

    def again(self) -> None:
        """Something else was written in between."""
        self._is_begun = False
