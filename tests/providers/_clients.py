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
from ._wire_gemini import Gemini
from ._wire_mistral import Mistral
from ._wire_ollama import Ollama
from ._wire_responses import Responses


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


def _responses(**more: Any) -> Callable[[str, float], dict[str, Any]]:
    return _openai(**{"model": "gpt-5", "use_responses_api": True, "reasoning": {"effort": "low", "summary": "auto"}, **more})


def _gemini(**more: Any) -> Callable[[str, float], dict[str, Any]]:
    def settings(url: str, timeout: float) -> dict[str, Any]:
        head = {"model": "gemini-2.5-pro", "base_url": url, "api_key": "k", "timeout": timeout, "max_retries": 1}
        return {**head, "include_thoughts": True, **more}

    return settings


def _ollama(url: str, timeout: float) -> dict[str, Any]:
    return {"model": "qwen3", "base_url": url, "reasoning": True, "client_kwargs": {"timeout": timeout}}


def _mistral(url: str, timeout: float) -> dict[str, Any]:
    import httpx

    # Its own timeout is a whole number of seconds.
    client = httpx.AsyncClient(base_url=url + "/v1", timeout=timeout)
    return {"model": "magistral-small", "base_url": url + "/v1", "api_key": "k", "async_client": client, "max_retries": 0}


SEALED = {"store": False, "include": ["reasoning.encrypted_content"]}
"""Nothing is stored by the provider, and thinking comes back sealed."""

CLIENTS = {
    one.name: one
    for one in (
        Client("openai-chat", "langchain_openai", "ChatOpenAI", Chat(), _openai()),
        Client("openai-chat-v1", "langchain_openai", "ChatOpenAI", Chat(), _openai(output_version="v1")),
        Client("strict-template", "langchain_openai", "ChatOpenAI", Strict(), _openai(model="devstral-small")),
        Client("anthropic", "langchain_anthropic", "ChatAnthropic", Anthropic(), _anthropic(), True, True, True),
        Client("anthropic-v1", "langchain_anthropic", "ChatAnthropic", Anthropic(), _anthropic(output_version="v1"), True, True, True),
        Client("responses", "langchain_openai", "ChatOpenAI", Responses(), _responses(), True, True),
        Client("responses-v0", "langchain_openai", "ChatOpenAI", Responses(), _responses(output_version="v0"), True, True),
        Client("responses-v1", "langchain_openai", "ChatOpenAI", Responses(), _responses(output_version="v1"), True, True),
        Client("responses-unstored", "langchain_openai", "ChatOpenAI", Responses(), _responses(**SEALED), True, True),
        Client("responses-chained", "langchain_openai", "ChatOpenAI", Responses(), _responses(use_previous_response_id=True), True, True),
        Client("gemini", "langchain_google_genai", "ChatGoogleGenerativeAI", Gemini(), _gemini(), True, True, fragments=False),
        Client("gemini-v1", "langchain_google_genai", "ChatGoogleGenerativeAI", Gemini(), _gemini(output_version="v1"), True, True, fragments=False),
        Client("ollama", "langchain_ollama", "ChatOllama", Ollama(), _ollama, True, fragments=False),
        Client("mistral", "langchain_mistralai", "ChatMistralAI", Mistral(), _mistral, True, fragments=False),
        Client("deepseek", "langchain_deepseek", "ChatDeepSeek", DeepSeek(), _deepseek, True),
        Client("groq", "langchain_groq", "ChatGroq", Groq(), _groq, True),
    )
}
