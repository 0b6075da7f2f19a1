"""The routes below `/langgraph`: the tables of all parts together. docs/langgraph-clients.md is the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .assistants import AssistantRoutes
from .protocol.routes import ProtocolRoutes
from .runs import RunRoutes
from .state_routes import StateRoutes
from .thread_routes import ThreadRoutes
from .threads import Threads

if TYPE_CHECKING:
    from ..service import Service


class LangGraphRoutes:
    """The handlers of the routes below `/langgraph`."""

    def __init__(self, service: Service) -> None:
        threads = Threads(service)
        service.when_deleted.append(threads.forget)
        runs = RunRoutes(threads)
        protocol = ProtocolRoutes(service, runs.queue, runs.creation)
        self._parts: list[Any] = [AssistantRoutes(service), ThreadRoutes(threads), StateRoutes(threads), runs, protocol]

    def table(self) -> list[tuple[str, str, Any]]:
        """Return the routes: method, path and handler."""
        return [route for part in self._parts for route in part.table()]
