"""The rules of the house, checked."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import langchain_runjournal
from langchain_runjournal import RunJournal

PACKAGE = Path(langchain_runjournal.__file__).parent
TWINS = [name for name in vars(RunJournal) if not name.startswith("_") and f"a{name}" in vars(RunJournal)]


def test_what_may_block_has_a_twin() -> None:
    """Every public method that may wait, and no other."""
    assert set(TWINS) == {
        "claim",
        "close",
        "delete",
        "flush",
        "follow",
        "follow_thread",
        "prune",
        "read",
        "recover",
        "resume_config",
        "run",
        "runs",
        "stop",
        "transcript",
    }


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_one_signature(name: str) -> None:
    """Same parameters, same defaults; the twin's docstring points to the first one."""
    plain, twin = getattr(RunJournal, name), getattr(RunJournal, f"a{name}")
    assert inspect.signature(plain).parameters == inspect.signature(twin).parameters
    returned = [str(inspect.signature(method).return_annotation) for method in (plain, twin)]
    assert returned[0] == returned[1].replace("AsyncIterator", "Iterator")
    assert f":meth:`{name}`" in twin.__doc__


def test_every_public_name_says_what_it_is() -> None:
    """Names in `__all__`, their public methods, and the verbs of a store."""
    from langchain_runjournal import stores, testing

    objects = [getattr(langchain_runjournal, name) for name in langchain_runjournal.__all__ if name != "__version__"]
    objects += [testing.StoreContract, testing.FakeClock, testing.FaultyStore, stores.Store, stores.Owner, stores.open_store]
    for thing in objects:
        assert thing.__doc__, thing
        if inspect.isclass(thing):
            for name, member in vars(thing).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    assert member.__doc__, f"{thing.__name__}.{name}"


def test_no_file_is_too_long() -> None:
    """A file over about 400 lines is a question of design."""
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
