"""The promises of every store, one test per promise. Public as `testing.StoreContract`."""

from .append import AppendContract
from .begin import BeginContract
from .many import ManyContract
from .records import RecordsContract
from .runs import RunsContract

__all__ = ["StoreContract"]


class StoreContract(AppendContract, BeginContract, RunsContract, ManyContract, RecordsContract):
    """The whole contract. Subclass it and define `open`; define `open_again`, too, if the same data can be opened twice.

    `open_again` returns a second handle on the same data, as another process would open it.
    """
