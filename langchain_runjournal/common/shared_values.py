"""Pure: the objects that a copy of a config shares with the original: the journal, and what writes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Shared:
    """An object that `copy.copy` and `copy.deepcopy` return as it is.

    Programs copy configs and graphs for each request. The copies record the same runs, in the same journal.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
