"""The response of a request that waits for the end of a run: line feeds as signs of life, and then the JSON.

Rule: a clean end says that the JSON is there. A wait that fails aborts the connection, so that the client comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ...common import strict_json
from ..transport import ABORT, Timing, aborter

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger("langchain_runjournal")

_SIGN_OF_LIFE: Final = b"\n"
"""White space before the JSON: proxies end connections on which nothing is sent."""


class WaitResponse(Response):
    """Sends what `work` returns, as JSON. `on_gone`: called if the client leaves before."""

    media_type = "application/json"

    def __init__(
        self,
        work: Callable[[], Awaitable[Any]],
        timing: Timing,
        *,
        headers: Mapping[str, str],
        on_gone: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._work = work
        self._timing = timing
        self._on_gone = on_gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        abort: Callable[[], bool] = scope.get(ABORT) or aborter(send, receive)
        working = asyncio.ensure_future(self._work())
        left = asyncio.ensure_future(_until_left(receive))
        try:
            await self._put(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not working.done():
                both: set[asyncio.Future[Any]] = {working, left}
                await asyncio.wait(both, timeout=self._timing.heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    if not working.done() and self._on_gone is not None:
                        self._on_gone()
                    return
                if not working.done():
                    await self._put(send, {"type": "http.response.body", "body": _SIGN_OF_LIFE, "more_body": True})
            body = strict_json.dumps(working.result()).encode()
            await self._put(send, {"type": "http.response.body", "body": body, "more_body": False})
        except Exception as exc:
            logger.error("aborting a request that waits for a run, which its client may send again: %s", exc)
            if not abort():
                raise
        finally:
            for task in (working, left):
                task.cancel()
            await asyncio.gather(working, left, return_exceptions=True)

    async def _put(self, send: Send, message: Any) -> None:
        await asyncio.wait_for(send(message), self._timing.write)


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
