"""`runjournal serve`: a graph over HTTP, with a chat page."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from ipaddress import ip_address
from typing import Any, Final

import click

from ...errors import InvalidArgument, StoreUnusable, UnknownStore
from ..graph_loader import load_graph
from ..options import Command, CommandFailed, Settings, common

_EPILOG = """\b
Examples:
  runjournal serve --demo
  runjournal serve my_app.agent:graph
  runjournal serve my_app.agent:graph --checkpointer threads.db --journal runs.db
  runjournal serve my_app.agent:graph --host 0.0.0.0 --port 8080

It looks up `module:graph` from the current directory: a compiled graph, a function that returns one, or a context manager
(also an async one) that yields one. What the graph brings is used: an attached graph its journal, a compiled one its
checkpointer. Otherwise the journal is runs.db, and the threads are in threads.db.

It serves this machine only. With another --host, every request needs a token; the address that is printed has it.
Ctrl-C stops the running answers, keeps what they said, and ends the server.
"""
_DEMO: Final = "langchain_runjournal.demo.chat:graph"
_GRACE: Final = 3
"""Seconds that open responses get when the server ends."""
_ORIGIN: Final = re.compile(r"\*|https?://[^/?#\s]+")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command(cls=Command, epilog=_EPILOG, short_help="Serve a graph, with a chat page.")
@click.argument("graph", metavar="[MODULE:GRAPH]", required=False)
@click.option("--demo", is_flag=True, help="Serve an agent that follows a script. It needs no key.")
@click.option("--checkpointer", metavar="PATH_OR_URL", help="Where the threads are: a SQLite file, or postgresql://... .")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--token",
    envvar="RUNJOURNAL_SERVE_TOKEN",
    show_envvar=True,
    help="What clients must send as a bearer token. Without it, one is made if --host is not this machine.",
)
@click.option(
    "--cancel-after",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop a run that a client of LangGraph Server began, if it has no reader for so long. Default: never.",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="An origin whose pages may use the server too. Without a token, those of this machine may.",
)
@click.option("--open", is_flag=True, help="Open the page in the browser.")
@common
@click.pass_obj
def serve(
    settings: Settings,
    graph: str | None,
    demo: bool,
    checkpointer: str | None,
    host: str,
    port: int,
    token: str | None,
    cancel_after: float | None,
    cors: tuple[str, ...],
    open: bool,
) -> int:
    """Serve a graph over HTTP, with a chat page: answers survive closed tabs, restarts and crashes."""
    _check_extra()
    if demo == (graph is not None):
        raise click.UsageError(
            "Give the graph as module:graph, or --demo." if not demo else "Give a graph or --demo, not both."
        )
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable()):
        raise click.UsageError("--token must be 8 or more printable ASCII characters.")
    for origin in cors:
        if not _ORIGIN.fullmatch(origin):
            raise click.UsageError(f"--cors {origin} is not an origin. Give one as https://chat.example, without a path.")
    if token is None and not _is_loopback(host):
        token = secrets.token_urlsafe(24)
    listener = _listener(host, port)
    about = {"token": token, "cancel_after": cancel_after, "cors": cors}
    server = _Server(settings, _DEMO if demo else str(graph), checkpointer, about, is_demo=demo)
    with listener:
        try:
            asyncio.run(server.run(listener, host, opens=open))
        except KeyboardInterrupt:  # while the graph was loaded
            return 130
        except (InvalidArgument, UnknownStore, StoreUnusable) as exc:
            raise click.UsageError(str(exc)) from exc
    return 0


def _check_extra() -> None:
    try:
        import starlette  # noqa: F401 - only to see whether they are there
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as exc:
        need = 'This command needs the extra "serve". Use `pip install "langchain-runjournal[serve]"`.'
        raise click.UsageError(need) from exc


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener(host: str, port: int) -> socket.socket:
    """Bind the address. uvicorn would end the process if it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listener = socket.socket(found[0][0], socket.SOCK_STREAM)
    except OSError as exc:
        raise click.UsageError(f"--host {host} does not name an address of this machine: {exc.strerror or exc}.") from exc
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[0][4])
        listener.listen(2048)  # from here on, clients wait instead of being refused
    except OSError as exc:
        listener.close()
        to_do = "Choose another one with --port, or take a free one with --port 0"
        raise click.UsageError(f"Port {port} of {host} cannot be used: {exc.strerror or exc}. {to_do}.") from exc
    return listener


class _Server:
    """The graph, its application, and uvicorn in one event loop."""

    def __init__(
        self,
        settings: Settings,
        graph: str,
        checkpointer: str | None,
        about: Mapping[str, Any],
        *,
        is_demo: bool,
    ) -> None:
        """`about`: for `page_app`."""
        self._settings = settings
        self._graph = graph
        self._checkpointer = checkpointer
        self._about = about
        self._is_demo = is_demo

    async def run(self, listener: socket.socket, host: str, *, opens: bool) -> None:
        """Serve until a signal ends the server. Then close the journal, which stops and settles the runs."""
        import uvicorn

        from ...server.serving import opened

        async with AsyncExitStack() as stack:
            try:
                graph = await load_graph(self._graph, stack, argument="The graph", needs_checkpointer=False)
            except CommandFailed as exc:
                raise click.UsageError(str(exc)) from exc
            served = await stack.enter_async_context(
                opened(graph, journal=self._settings.values.get("journal"), checkpointer=self._checkpointer)
            )
            config = uvicorn.Config(
                self._app(served),
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
            )
            server = _uvicorn(config)
            with _on_signals(lambda: setattr(server, "should_exit", True)), _quiet_end(server):
                self._announce(listener, host, served, opens)
                await server.serve(sockets=[listener])
                self._settings.output.note("stopping the running answers")
                await stack.aclose()

    def _app(self, served: Any) -> Any:
        from ...server.page_app import page_app

        ideas: tuple[str, ...] = ()
        hint = ""
        if self._is_demo:
            from ...demo.chat import HINT, IDEAS

            ideas, hint = IDEAS, HINT
        return page_app(served.graph, served.journal, ideas=ideas, hint=hint, **self._about)

    def _announce(self, listener: socket.socket, host: str, served: Any, opens: bool) -> None:
        port = listener.getsockname()[1]
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104 - as the user asked
        shown = f"[{shown}]" if ":" in shown else shown
        address = f"http://{shown}:{port}/" + (f"?token={token}" if (token := self._about["token"]) else "")
        output = self._settings.output
        output.say(f"runjournal: {address}", "bold")
        output.note(f"the threads are in {served.checkpointer}. Ctrl-C ends the server")
        if opens:
            webbrowser.open(address)


def _uvicorn(config: Any) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """uvicorn's server without its handling of signals: it would raise them again before the journal is closed."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(config)


@contextmanager
def _quiet_end(server: Any) -> Iterator[None]:
    """Leave out of the log what uvicorn says of the streams that it ends with the server, a traceback for each: they end so
    on purpose, and their readers come back."""

    def is_news(record: logging.LogRecord) -> bool:
        is_cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
        return not (server.should_exit and (is_cancelled or "running task(s)" in str(record.msg)))

    log = logging.getLogger("uvicorn.error")
    log.addFilter(is_news)
    try:
        yield
    finally:
        log.removeFilter(is_news)


@contextmanager
def _on_signals(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` at the first signal that asks the process to end; cancel the task at the second one."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    count = 0

    def hear() -> None:
        nonlocal count
        count += 1
        if count == 1 or task is None:
            end()
        else:
            task.cancel()

    old = {}
    for number in _SIGNALS:
        with suppress(ValueError):  # only the main thread may handle signals
            old[number] = signal.signal(number, lambda *_: loop.call_soon_threadsafe(hear))
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
