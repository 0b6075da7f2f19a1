"""A real model for the chat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.tools import BaseTool

from ..errors import ExtraMissing
from ..guard.cutoff_notes import add_notes
from ._place import DemoFailed

_KEYS: Final = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
    "google_genai": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""Where a provider finds its key: some say that there is none only when they are asked something."""


def real_model(name: str, tools: Sequence[BaseTool]) -> Any:
    """A model by `provider:name`, with tools where it can have them. Raises `DemoFailed` with what is to be done."""
    try:
        from langchain.chat_models import init_chat_model
    except ImportError:
        raise DemoFailed(str(ExtraMissing(what="A real model", package="langchain", extra="agent"))) from None
    provider, _, model = name.partition(":")
    if not (provider and model):
        raise DemoFailed(f'A real model is named as provider:name, for example "openai:gpt-5", and not {name!r}.')
    hint = _hint(provider)
    try:
        found = init_chat_model(name)
    except ImportError as problem:
        raise DemoFailed(f"{name} cannot be used: {one_line(problem)}") from None
    except Exception as problem:  # noqa: BLE001 - whatever a provider raises, it is the same to a user
        raise DemoFailed(hint or f"{name} cannot be used: {one_line(problem)}") from None
    if hint:
        raise DemoFailed(hint)
    try:
        bound = found.bind_tools(tools)
    except NotImplementedError:
        bound = found
    return tell_of_cuts | bound


def tell_of_cuts(messages: Any) -> Any:
    """Told nothing, a model takes half an answer of its own for its choice."""
    return add_notes(messages).messages


def _hint(provider: str) -> str:
    keys = _KEYS.get(provider, ())
    has_key = not keys or any(map(os.environ.get, keys))
    return "" if has_key else f"{provider} needs a key. Set the variable {keys[0]} to yours, and try again."


def one_line(problem: object, longest: int = 150) -> str:
    """What an error says, in one line that is not too long."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= longest else text[: longest - 1] + "…"
