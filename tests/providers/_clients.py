"""The client packages, each set up for our server, and what its provider can do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._server import Wire
from ._wire_anthropic import Anthropic
from ._wire_chat import Chat, DeepSeek, Groq, Strict


@dataclass(frozen=True)
class Client:
    """One client package in one setting."""

    name: str
    package: str
    cls: str
    wire: Wire
    settings: Callable[[str, float], dict[str, Any]]
    """Of the address of the server and the timeout of a read."""
    thinks: bool = False
    searches: bool = False
    redacts: bool = False
    fragments: bool = True
    """Whether the arguments of a call come in fragments."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    def model(self, url: str, timeout: float) -> Any:
        return getattr(importlib.import_module(self.package), self.cls)(**self.settings(url, timeout))


def _chat(url: str, timeout: float, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4.1", "base_url": url + "/v1", "api_key": "k", "timeout": timeout, "max_retries": 0, **more}


def _openai(**more: Any) -> Callable[[str, float], dict[str, Any]]:
    return lambda url, timeout: _chat(url, timeout, **{"use_responses_api": False, **more})


def _anthropic(**more: Any) -> Callable[[str, float], dict[str, Any]]:
    def settings(url: str, timeout: float) -> dict[str, Any]:
        head = {"model": "claude-sonnet-4-5", "base_url": url, "api_key": "k", "timeout": timeout, "max_retries": 0}
        return {**head, "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024}, **more}

    return settings


def _deepseek(url: str, timeout: float) -> dict[str, Any]:
    return {"model": "deepseek-chat", "api_base": url + "/v1", "api_key": "k", "timeout": timeout, "max_retries": 0}


def _groq(url: str, timeout: float) -> dict[str, Any]:
    return {"model": "qwen/qwen3-32b", "base_url": url, "api_key": "k", "timeout": timeout, "max_retries": 0}


CLIENTS = {
    one.name: one
    for one in (
        Client("openai-chat", "langchain_openai", "ChatOpenAI", Chat(), _openai()),
        Client("openai-chat-v1", "langchain_openai", "ChatOpenAI", Chat(), _openai(output_version="v1")),
        Client("strict-template", "langchain_openai", "ChatOpenAI", Strict(), _openai(model="devstral-small")),
        Client("anthropic", "langchain_anthropic", "ChatAnthropic", Anthropic(), _anthropic(), True, True, True),
        Client("anthropic-v1", "langchain_anthropic", "ChatAnthropic", Anthropic(), _anthropic(output_version="v1"), True, True, True),
        Client("deepseek", "langchain_deepseek", "ChatDeepSeek", DeepSeek(), _deepseek, True),
        Client("groq", "langchain_groq", "ChatGroq", Groq(), _groq, True),
    )
}
