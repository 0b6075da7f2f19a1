"""An ASGI application behind a real uvicorn, in a thread of the test process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio._backends._asyncio  # noqa: F401 - see below
import uvicorn

# anyio imports its backend when it is first used, and pytest parses that module, because anyio is a plugin of it. CPython
# 3.11 fails if two threads parse at once, such as that of the server and that of its client. So it is imported here.
PATIENCE = 30.0


@contextmanager
def served(make: Callable[[], Any], **options: Any) -> Iterator[str]:
    """Yield the URL of an application, which is made on the thread of its event loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make, factory=True, log_level="warning", ws="none", **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="uvicorn")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()
