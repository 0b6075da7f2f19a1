"""Pure: the format of a spool file, for the code that writes it and the code that reads it.

Rule: a record is valid from the moment its length is written. Its checksum covers the slot and all fields after it.

    file    header | record | record | ... | zeros
    header  magic, store id, owner id, number, size, checksum; `drained`: the store has all records before this position (an
            import does not believe this number, and asks the store); `turn`: the position of the file in the order of use,
            0 for a spare file
    record  checksum, length | slot, seq, wall clock, type | payload, which is JSON
"""

from __future__ import annotations

import struct
from typing import Final

TEXT, VALUE, CALL, OPEN = range(4)
"""The types of records: the text of a delta (TEXT); the JSON of any other event (VALUE); the call of the records that follow
(CALL); a run and its slot (OPEN)."""

MAGIC: Final = b"RJSPOOL1"
HEADER: Final = struct.Struct("<8s16s16sIQI")
NUMBER: Final = struct.Struct("<Q")
DRAINED_AT: Final = 64
TURN_AT: Final = 72
START: Final = 128
# Native byte order and alignment, so that each number is written by one store instruction, and a length is never half
# written. `pack_into` first fills with zeros, which changes nothing, because the bytes are zeros already.
PREFIX: Final = struct.Struct("@II")
BODY: Final = struct.Struct("<IIqB")
