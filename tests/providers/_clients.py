"""The client packages, each set up for our server, and what its provider can do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.providers._server import Wire
from tests.providers._wire_anthropic import Anthropic
from tests.providers._wire_chat import Chat, DeepSeek, Groq, Strict
from tests.providers._wire_gemini import Gemini
from tests.providers._wire_mistral import Mistral
from tests.providers._wire_ollama import Ollama
from tests.providers._wire_responses import Responses


@dataclass(frozen=True)
class Client:
    """One client package in one setting."""

    name: str
    package: str
    cls: str
    wire: Wire
    settings: Callable[[str, float], dict[str, Any]]
    """Of the address of the server and the timeout of a read."""
    can: str
    """What its provider does: `thinks`, `redacts` its thinking, `searches` by itself, sends arguments in `fragments`."""

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
    return _openai(
        **{"model": "gpt-5", "use_responses_api": True, "reasoning": {"effort": "low", "summary": "auto"}, **more}
    )


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

OPENAI, ANTHROPIC = ("langchain_openai", "ChatOpenAI"), ("langchain_anthropic", "ChatAnthropic")
GOOGLE, OLLAMA = ("langchain_google_genai", "ChatGoogleGenerativeAI"), ("langchain_ollama", "ChatOllama")
MISTRAL, DEEPSEEK = ("langchain_mistralai", "ChatMistralAI"), ("langchain_deepseek", "ChatDeepSeek")
GROQ = ("langchain_groq", "ChatGroq")
CLAUDE, GPT, PRO = "fragments thinks searches redacts", "fragments thinks searches", "thinks searches"

CLIENTS = {
    one.name: one
    for one in (
        Client("openai-chat", *OPENAI, Chat(), _openai(), "fragments"),
        Client("openai-chat-v1", *OPENAI, Chat(), _openai(output_version="v1"), "fragments"),
        Client("strict-template", *OPENAI, Strict(), _openai(model="devstral-small"), "fragments"),
        Client("anthropic", *ANTHROPIC, Anthropic(), _anthropic(), CLAUDE),
        Client("anthropic-v1", *ANTHROPIC, Anthropic(), _anthropic(output_version="v1"), CLAUDE),
        Client("responses", *OPENAI, Responses(), _responses(), GPT),
        Client("responses-v0", *OPENAI, Responses(), _responses(output_version="v0"), GPT),
        Client("responses-v1", *OPENAI, Responses(), _responses(output_version="v1"), GPT),
        Client("responses-unstored", *OPENAI, Responses(), _responses(**SEALED), GPT),
        Client("responses-chained", *OPENAI, Responses(), _responses(use_previous_response_id=True), GPT),
        Client("gemini", *GOOGLE, Gemini(), _gemini(), PRO),
        Client("gemini-v1", *GOOGLE, Gemini(), _gemini(output_version="v1"), PRO),
        Client("ollama", *OLLAMA, Ollama(), _ollama, "thinks"),
        Client("mistral", *MISTRAL, Mistral(), _mistral, "thinks"),
        Client("deepseek", *DEEPSEEK, DeepSeek(), _deepseek, "fragments thinks"),
        Client("groq", *GROQ, Groq(), _groq, "fragments thinks"),
    )
}
