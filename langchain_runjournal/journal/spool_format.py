"""Pure: what stands in a spool file, for those who write it and those who read it.

Rule: a record counts from the moment its length is written, and its checksum covers all the rest of it.

    file    header | record | record | ... | zeros
    header  magic, store id, owner id, number, size, checksum; `drained`: up to here all is in the store, which a recovery
            does not believe but asks the store; `turn`: the place in the order in which the files were used, 0 for one that
            was only kept ready
    record  checksum, length | slot, seq, wall clock, type | payload, which is JSON
"""

from __future__ import annotations

import struct
from typing import Final

TEXT, VALUE, CALL, OPEN = range(4)
"""Types of record: the text of a delta; the JSON of any other event; from here on another call; a run and its slot."""

MAGIC: Final = b"RJSPOOL1"
HEADER: Final = struct.Struct("<8s16s16sIQI")
NUMBER: Final = struct.Struct("<Q")
DRAINED_AT: Final = 64
TURN_AT: Final = 72
START: Final = 128
# Native, so that each number is one store, and never half a length. What pack_into does first, filling with zeros, changes
# nothing: they are zeros already.
PREFIX: Final = struct.Struct("@II")
BODY: Final = struct.Struct("<IIqB")
