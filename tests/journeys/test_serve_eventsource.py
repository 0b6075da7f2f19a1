"""The `EventSource` of a real browser: it comes back by itself, has each event once, and stops when the run is over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from tests.journeys.test_serve_network import fates
from tests.support.bad_network import BadNetwork
from tests.support.servers import free_port
from tests.support.serving import a_browser
from tests.support.serving_process import Servers, servers

pytestmark = [pytest.mark.look, pytest.mark.skipif(os.name != "posix", reason="signals")]

__all__ = ["servers"]  # a fixture

FOLLOW = """url => new Promise(resolve => {
    const got = [], source = new EventSource(url);
    source.onmessage = message => { got.push([message.lastEventId, message.type, message.data]); window.got = got.length; };
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) resolve(got); };
})"""
"""What a page does, and no more: the browser closes the source when the answer is 204."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start one browser for all tests here."""
    with a_browser() as opened:
        yield opened


def page_at(browser: Any, url: str) -> Any:
    """Return a page of the same origin as the streams."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{url}/openapi.json")
    return page


@pytest.mark.parametrize("way", ["reset", "end", "finish"])
def test_every_event_once_over_a_bad_network(servers: Servers, browser: Any, way: str) -> None:
    """S1, S6, S56: connections that are reset, closed, or ended by a proxy as if complete; a second tab gets the same."""
    server = servers()
    run_id = server.begin("count 60")
    limits = ((one, max(2_000, size)) for one, size in fates("EventSource", way))
    with BadNetwork(server.port, fates=limits) as network:
        pages = [page_at(browser, server.url) for _ in range(2)]
        for page in pages:
            page.evaluate("window.got = 0")
        got = pages[0].evaluate(FOLLOW, f"{server.url}/runs/{run_id}/events")
        pages[1].goto(f"{network.url}/graphs")
        bad = pages[1].evaluate(FOLLOW, f"{network.url}/runs/{run_id}/events")
        assert network.cuts > 1
    assert [tuple(one) for one in got] == server.frames(f"/runs/{run_id}/events")
    assert bad == got


def test_a_server_that_is_killed_and_started_again(servers: Servers, browser: Any) -> None:
    """S37, S38: the source comes back to the new process with its last id, and hears how the run ended."""
    port = free_port()
    server = servers("--port", str(port), pace=0.02)
    run_id = server.begin("count 5000")
    page = page_at(browser, server.url)
    page.evaluate(f"window.whole = ({FOLLOW})('/runs/{run_id}/events'); null")
    page.wait_for_function("window.got >= 20")
    server.end(signal.SIGKILL)
    again = servers("--port", str(port), pace=0.02)
    got = page.evaluate("window.whole")
    assert [tuple(one) for one in got] == again.frames(f"/runs/{run_id}/events")
    assert '"crash"' in got[-1][2]
