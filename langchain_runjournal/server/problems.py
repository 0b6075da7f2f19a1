"""Problems: the answers to requests that cannot be done, as `application/problem+json` (RFC 9457).

Rule: `detail` says what to do. No text of an exception goes out: it is for the log, and may name a file of the server.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response

from .. import errors

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger("langchain_runjournal")

_TITLES: Final = {
    400: "Bad request",
    401: "Not logged in",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Not JSON",
    422: "Not understood",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}
NOT_FOUND: Final = "This does not exist, or you may not see it. Check the id in the URL."
AWAY: Final = "The server cannot reach its data right now. Send the same request again in a moment."


class Problem(Exception):
    """A request that cannot be done. `extra`: further members of the problem, for programs."""

    def __init__(self, status: int, detail: str, *, retry_after: int | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after
        self.extra = extra

    def response(self) -> Response:
        """Return the problem as a response."""
        body = {"type": "about:blank", "title": _TITLES.get(self.status, "Error"), "status": self.status}
        headers = {"cache-control": "no-store"}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        content = {**body, "detail": self.detail, **self.extra}
        return JSONResponse(content, self.status, headers, media_type="application/problem+json")


def not_found() -> Problem:
    """Return the problem of what does not exist, and of what the client may not see: the two look alike."""
    return Problem(404, NOT_FOUND)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception stands for."""
    match error:
        case Problem():
            return error
        case errors.RunNotFound():
            return not_found()
        case errors.ThreadBusy():
            detail = 'Wait until the run has ended, stop it, or send the message with "if_busy": "wait" or "stop".'
            return Problem(409, f"The thread is busy with another run. {detail}", run_id=error.run_id)
        case errors.RunAtWork():
            return Problem(
                409, "A run of the thread is running. Stop it first, or use ?force=1.", run_ids=list(error.run_ids)
            )
        case errors.StopTimeout():
            detail = "The run was asked to stop, and has not ended yet. Send the same request again in a moment."
            return Problem(503, detail, retry_after=5, run_id=error.run_id)
        case errors.StoreFailed() | errors.JournalClosed() | errors.StoreClosed() | errors.SettlementTimeout():
            logger.warning("a request was refused with status 503: %s", error)
            return Problem(503, AWAY, retry_after=1)
        case _:
            logger.error("a request failed: %s", type(error).__name__, exc_info=error)
            return Problem(500, "The server met an error, which its log has. Sending the request again may not help.")


async def respond(request: Request, error: Exception) -> Response:
    """Answer a request whose handler raised an exception. For `Starlette(exception_handlers=...)`."""
    return problem_of(error).response()


async def respond_http(request: Request, error: Any) -> Response:
    """Answer for an `HTTPException`: of Starlette's router, or of the program's `authorize`."""
    details = {
        404: NOT_FOUND,
        405: "This path does not have that method. See /openapi.json for those that it has.",
    }
    detail = details.get(error.status_code) or str(error.detail)
    found = Problem(error.status_code, detail).response()
    found.headers.update(error.headers or {})
    return found
