"""Pure: an answer of the model where a model must have one, and none was given.

Rule: a bridge is for one request, is never stored, and has always the same words at the same place. A run that is stopped in
its tools leaves `tool, human`, and one that is stopped before its first word `human, human`: some providers and chat
templates refuse both. The words are true wherever they stand, because they say that no answer was given and not why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from langchain_core.runnables.base import RunnableBindingBase

from ..messages.marks import MARK, new_mark
from ..messages.tool_pairs import is_human, is_tool
from ..messages.tool_results import stable_id

Behind: TypeAlias = frozenset[str]
"""The messages behind which a model refuses a message of the user: `tool` results, other messages of the user (`human`)."""
NOTHING: Final[Behind] = frozenset()
BOTH: Final[Behind] = frozenset({"tool", "human"})
TEXT: Final = "(No answer was given here.)"
_REFUSING: Final[dict[str, Behind]] = {
    # Mistral's API: 400 "Unexpected role 'user' after role 'tool'". It joins consecutive messages of the user by itself.
    "mistralai-chat": frozenset({"tool"}),
}
"""The clients (`_llm_type`) whose provider refuses such a history."""
_TEMPLATES: Final[dict[str, str]] = {
    # vLLM, llama.cpp, LM Studio, NIM and OpenRouter render the model's own template, and pass on its refusal.
    r"(mis|mix|minis|magis|devs|codes|vox)tral|pixtral": (
        "Mistral's models, also on other servers: \"Unexpected role 'user' after role 'tool'\", or "
        '"After the optional system message, conversation roles must alternate user and assistant roles ..."'
    ),
    r"gemma": 'Gemma: "Conversation roles must alternate user/assistant/user/assistant/..."',
    r"llama-?2\b|codellama": 'Llama 2: "Conversation roles must alternate user/assistant/user/assistant/..."',
}
"""Models whose chat template refuses such a history, by a pattern in their name, and the words of the refusal."""
_LENIENT: Final = frozenset({"chat-ollama", "chat-google-generative-ai"})
"""Clients that accept such a history for any model: their servers use templates of their own, or none."""
_NAMES: Final = ("model_name", "model", "model_id")
_TEMPLATED: Final = re.compile("|".join(_TEMPLATES), re.IGNORECASE)


def needed(model: Any) -> Behind:
    """Return behind which messages a chat model refuses a message of the user: by its client, or else by its name."""
    while issubclass(type(model), RunnableBindingBase):  # `with_retry` and the like wrap the model
        model = model.bound
    client = _attribute(model, "_llm_type")
    if client in _REFUSING:
        return _REFUSING[client]
    is_strict = client not in _LENIENT and any(_TEMPLATED.search(_attribute(model, name)) for name in _NAMES)
    return BOTH if is_strict else NOTHING


def _attribute(model: Any, name: str) -> str:
    try:
        found = getattr(model, name, None)
    except Exception:  # noqa: BLE001 - a wrapper may create its model only now, and fail
        return ""
    return found if isinstance(found, str) else ""


def gaps(messages: Sequence[Any], behind: Behind) -> list[int]:
    """Return the places of the user's messages that stand right `behind` such a message."""
    found = []
    was_refused = False
    for place, message in enumerate(messages if behind else ()):
        user = is_human(message)
        if was_refused and user:
            found.append(place)
        was_refused = "human" in behind if user else "tool" in behind and is_tool(message)
    return found


def bridged(messages: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """Return the messages with an answer of the model in front of each of these places."""
    from langchain_core.messages import AIMessage

    out = list(messages)
    for place in reversed(places):
        id = stable_id("rjb-", f"{messages[place].id or place}|bridge")
        mark = new_mark("synthetic", reason="bridge")
        out.insert(place, AIMessage(TEXT, id=id, additional_kwargs={MARK: mark}))
    return out
