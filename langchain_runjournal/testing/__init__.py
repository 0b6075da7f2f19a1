"""Helpers for tests: of our stores, of yours, and of programs that use a journal.

- `StoreContract`: one test per promise of `Store`. Subclass it in a test module, define how to open a store, and pytest runs
  all of them::

      class TestMyStore(StoreContract):
          def open(self):
              return MyStore(...)

- `FaultyStore`: a store that fails when the test says so, before or after it has done its work.
- `FakeClock`: both clocks of a journal, moved by hand.
- `ScriptedChatModel`: a chat model that streams a script as a provider does. A script has `Reasoning`, `Call`, `Wait` and
  texts.
"""

from __future__ import annotations

from ..stores import Owner, Store
from .fakes import FakeClock, FaultyStore
from .scripted_model import Answer, Call, Reasoning, Script, ScriptedChatModel, Step, Wait
from .store_contract import StoreContract
from .store_contract.support import events_of, numbered

__all__ = [
    "Answer",
    "Call",
    "FakeClock",
    "FaultyStore",
    "Owner",
    "Reasoning",
    "Script",
    "ScriptedChatModel",
    "Step",
    "Store",
    "StoreContract",
    "Wait",
    "events_of",
    "numbered",
]
