"""docs/design.md is true: one word per concept, one section a room, and the rooms and doors that the house test enforces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.test_layers import ALWAYS, DOORS, MAY_IMPORT, PURE_ROOMS
from tests.house.test_prose import PAGES, prose_of
from tests.support.imports import ROOT, modules, room_of

DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")


class Refused(NamedTuple):
    """A phrase that is not used for a concept of the glossary, where a regular expression can tell."""

    found_by: str
    example: str
    not_in: frozenset[str] = frozenset()
    """Rooms in which it means something else."""


_SPOOL = r"(?:the |a |its |their |all |each |every |one |dead |of |whole )*spools?\b"
REFUSED = {
    "lane": Refused(r"\blanes?\b", "the lanes of live runs", frozenset({"timeline", "view"})),
    "drain a spool": Refused(rf"\bdrain(?:s|ed|ing)? {_SPOOL}", "drain the spools of dead owners"),
    "collect a spool": Refused(rf"\bcollect(?:s|ed|ing)? {_SPOOL}", "collects its spool"),
    "bring in a spool": Refused(r"\b(?:brings?|brought|bringing) in\b", "spools that were brought in"),
    "gone owner": Refused(
        r"\bowners? (?:that |which |who )?(?:is|are|has|have) (?:gone|free)\b|\bgone owners?\b",
        "whose owner is gone",
    ),
    "free run": Refused(r"\bfree runs?\b|\bruns? (?:that )?(?:is|are) free\b", "a run that is free"),
    "steal a run": Refused(r"\b(?:steals?|stole|stolen|stealing)\b", "another process stole the run"),
    "turn on a thread": Refused(r"\bturns? on (?:its|the|a|their|one|that) threads?\b", "it has its turn on its thread"),
    "super-step": Refused(r"\bsuper[- ]steps?\b", "a super-step"),
    "conclude a run": Refused(r"\bconclud(?:es?|ed|ing)\b", "the run was concluded"),
    "give up a run": Refused(
        r"\b(?:gives?|gave|given|giving) up (?:the |a |its |their |an? \w+ )?runs?\b"
        r"|\b(?:gives?|gave|given|giving) (?:it|them|the run|a run|runs) up\b",
        "it gives up the run",
    ),
    "take up a run": Refused(r"\b(?:takes?|taken|took|taking) up\b", "a task that was taken up"),
    "go on": Refused(r"\bruns? (?:that |which )?(?:goes|go|going|went) on\b", "while the run goes on"),
    "torn": Refused(r"\btorn\b", "a torn record"),
    "made-up result": Refused(r"\bmade[- ]up\b", "a made-up result in the place of a tool's"),
    "fake result": Refused(r"\b(?:fake|invented) (?:tool )?results?\b", "a fake tool result"),
    "guest": Refused(r"\bguests?\b", "who reads is a guest"),
    "time line": Refused(r"\btime lines?\b", "the time line of a run"),
}
"""By the phrase that stands in backticks in the last column of the glossary."""
FINE = (
    "the journal was garbage-collected with its spool",
    "`given_up` says whether the journal tries again",
    "a user who says the same again from the turn before",
    "its owner was killed, and the timeline draws a superstep",
    "the program is free to run it again",
)


def section(name: str) -> str:
    """The text of a section of docs/design.md, without those inside it."""
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", DESIGN, re.M | re.S)
    assert found is not None, f"docs/design.md has no section {name}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables of a text, without their heads."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line] for line in lines]
    heads = {at - 1 for at, line in enumerate(table) if set("".join(line)) <= {"-"}}
    return [line for at, line in enumerate(table) if at not in heads and set("".join(line)) - {"-"}]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", cell)


GLOSSARY = {row[0].strip("*"): row for row in rows(section("Glossary"))}


def refused_in(text: str, room: str = "") -> list[str]:
    """The refused phrases of a text, also across its line breaks; what stands in backticks is a name and not prose."""
    plain = re.sub(r"\s*\n\s*(?:#\s*)?", " ", re.sub(r"`[^`\n]+`", "", text))
    return [
        f"{match[0]!r} (glossary: not {phrase!r})"
        for phrase, one in REFUSED.items()
        if room not in one.not_in
        for match in re.finditer(one.found_by, plain, re.IGNORECASE)
    ]


# --- words ------------------------------------------------------------------------------------------------------------


def test_the_glossary_has_one_row_for_each_word() -> None:
    """Each word with one meaning, and with what it is not called."""
    assert len(GLOSSARY) == len(rows(section("Glossary"))) > 40
    for word, row in GLOSSARY.items():
        assert len(row) == 3, word
        assert all(row), word
        assert row[1].endswith("."), word


@pytest.mark.parametrize("word", GLOSSARY)
def test_a_word_of_the_glossary_is_used(word: str) -> None:
    """In the code or in its prose: a glossary of other words would be no help."""
    used = "".join(path.read_text("utf-8") for path in modules().values())
    parts = [part for part in re.split(r"[ -]", word) if part not in ("a", "the")]
    assert re.search(r"\b" + r"\w*[ _-]?(?:\w+ ){0,3}".join(map(re.escape, parts)), used, re.IGNORECASE), word


def test_what_is_refused_stands_in_the_glossary() -> None:
    """The phrases in backticks of its last column, and no others: what a reader is asked for is what the test enforces."""
    assert {phrase for row in GLOSSARY.values() for phrase in names(row[2])} == set(REFUSED)


@pytest.mark.parametrize("phrase", REFUSED)
def test_the_check_of_a_phrase_can_fail(phrase: str) -> None:
    """In whatever case, and across a line break."""
    assert [phrase in found for found in refused_in(REFUSED[phrase].example.upper().replace(" ", "\n    # "))] == [True]


def test_what_means_something_else_is_not_refused() -> None:
    """The words of the glossary have other meanings in English and in the code."""
    assert [found for text in FINE for found in refused_in(text)] == []


@pytest.mark.parametrize("module", modules())
def test_a_module_uses_the_words_of_the_glossary(module: str) -> None:
    """Docstrings, comments, log lines, errors, and the help of commands."""
    path, room = modules()[module], room_of(module)
    assert not [f"{path.name}:{line} {found}" for line, text in prose_of(path) for found in refused_in(text, room)]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_page_uses_the_words_of_the_glossary(page: Path) -> None:
    """README, CONTRIBUTING and docs."""
    assert not [found for block in page.read_text("utf-8").split("\n\n") for found in refused_in(block)]


# --- rooms ------------------------------------------------------------------------------------------------------------

ROOMS = [row for row in rows(section("Rooms")) if row[0].startswith("[")]


def test_the_table_of_rooms_is_the_one_that_is_enforced() -> None:
    """Each room with what it may import. `errors`, `common` and `events` are named only where a room may not import all."""
    documented = {names(row[0])[0]: set(names(row[2])) for row in ROOMS}
    implied = {room: set() if room in ALWAYS else ALWAYS for room in documented}
    assert {room: may | implied[room] for room, may in documented.items()} == MAY_IMPORT
    assert list(documented) == re.findall(r"^## ([a-z]+)$", DESIGN, re.M)


def test_the_pure_rooms_are_called_pure() -> None:
    """In the table, and no others."""
    assert {names(row[0])[0] for row in ROOMS if row[1].endswith("Pure.")} == PURE_ROOMS


def test_the_doors_are_those_that_are_enforced() -> None:
    """Each with the reason why it is open."""
    doors = [row for row in rows(section("Rooms")) if row[0].startswith("`")]
    assert {(names(row[0])[0], names(row[1])[0]) for row in doors} == set(DOORS)
    assert all(row[2] for row in doors)


def in_room(module: str) -> str:
    """The name of a module in the section of its room."""
    room, _, rest = module.partition(".")
    return rest.replace(".", "/") if rest else "__main__" if room == "__main__" else ""


def named_in(room: str) -> set[str]:
    """The modules that a section names: in the first column of its tables, and beside a directory in the whole row."""
    table = rows(section(room).partition("\n### ")[0])
    cells = ["".join(row) if row[0].endswith("/`") else row[0] for row in table]
    found = names("".join(cells) if cells else section(room))
    return {name.rstrip("/") for name in found if re.fullmatch(r"[a-z0-9_/]+", name)}


@pytest.mark.parametrize("module", [one for one in modules() if in_room(one)])
def test_a_module_is_named_in_the_section_of_its_room(module: str) -> None:
    """So that a new module gets its line there."""
    assert in_room(module) in named_in(room_of(module))


def test_a_module_that_is_named_exists() -> None:
    """In the tables of the rooms."""
    there = {f"{room_of(one)}/{in_room(one)}" for one in modules()} | {
        "stores/sqlite/migrations",
        "stores/redis/lua",
        "stores/postgres/migrations",
        "cli/commands",
        "server/page",
    }
    named = {f"{room}/{name}" for room in MAY_IMPORT if rows(section(room)) for name in named_in(room)}
    assert len(named) > 100
    assert sorted(named - there) == []


def test_a_name_on_the_page_exists() -> None:
    """Classes, methods and functions: what stands in backticks and looks like one."""
    package = "".join(path.read_text("utf-8") for path in modules().values())
    text = re.sub(r"^```.*?^```", "", DESIGN.partition("## Rooms")[2], flags=re.M | re.S)
    named = {name for name in names(text) if re.fullmatch(r"[A-Z]\w+(?:\.\w+)?|\w+_of|\w+_run", name)}
    assert len(named) > 40
    assert [name for name in sorted(named) if any(part not in package for part in name.split("."))] == []
