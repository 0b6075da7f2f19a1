"""A URL leads to the module of its store."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from langchain_runjournal import RunJournal, errors, stores
from langchain_runjournal.stores import open_store, path_of
from langchain_runjournal.stores.memory import MemoryStore


def test_a_scheme_leads_to_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store for another scheme is a module with `open_url`, in the table of schemes: nothing else knows of it."""
    opened: list[str] = []

    def open_url(url: str, **options: Any) -> MemoryStore:
        opened.append(url)
        return MemoryStore()

    module = ModuleType("another_store")
    module.open_url = open_url  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "another_store", module)
    monkeypatch.setitem(stores._MODULES, "another", "another_store")
    with RunJournal("Another://host/db") as journal:
        assert journal.runs() == []
    assert opened == ["Another://host/db"]
    with pytest.raises(errors.UnknownStore, match="'unknown'"):
        open_store("unknown://host/db")


def test_the_file_that_a_url_names(tmp_path: Path) -> None:
    """Of a path, the path itself; a Windows drive is not a scheme."""
    assert path_of("runs.db") == Path("runs.db")
    assert path_of("c:runs.db") == Path("c:runs.db")
    assert path_of(f"sqlite:///{tmp_path}/a%20b.db") == tmp_path / "a b.db"
    with pytest.raises(errors.UnknownStore, match="'unknown'"):
        path_of("unknown://host")
