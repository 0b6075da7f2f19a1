"""The Python SDK of LangGraph as a client of an application, without a socket."""

from __future__ import annotations

from typing import Any

import httpx
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

BASE = "http://localhost/langgraph"


def sdk(app: Any, **headers: str) -> LangGraphClient:
    """Return a client that sends these headers with each request."""
    client = get_client(url=BASE, api_key=None, headers=headers)
    transport = httpx.ASGITransport(app)
    client.http.client = httpx.AsyncClient(base_url=BASE, transport=transport, headers=headers)
    return client


def http(app: Any, **headers: str) -> httpx.AsyncClient:
    """Return a plain client, whose paths begin below `/langgraph`."""
    return httpx.AsyncClient(base_url=BASE, transport=httpx.ASGITransport(app), headers=headers)
