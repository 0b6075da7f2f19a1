"""The guard around callbacks: no error of ours reaches the agent."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from ..journal.core import core_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_P = ParamSpec("_P")


def never_raises(method: Callable[_P, Any]) -> Callable[_P, Any]:
    """Return a callback that logs errors instead of raising them: the agent continues, and the journal's next barrier
    raises. The object of the callback has a `journal`."""

    @functools.wraps(method)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:
            logger.exception("could not record what %s reported", method.__name__)
            core_of(cast("RunJournal", cast("Any", args[0]).journal)).appender.miss()

    return guarded
