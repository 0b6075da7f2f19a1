"""Rooms: imports go down, what must go up goes through a named door, pure rooms stay pure, private names stay at home."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.imports import ROOT, Import, imports, modules, room_of

ALWAYS = {"errors", "common", "events"}
MAY_IMPORT = {
    "errors": set(),
    "common": {"errors"},
    "events": {"errors", "common"},
    "messages": ALWAYS,
    "stores": ALWAYS,
    "redact": ALWAYS,
    "journal": ALWAYS | {"stores", "messages", "redact"},
    "guard": ALWAYS | {"journal", "messages"},
    "capture": ALWAYS | {"journal", "messages", "guard"},
    "traces": ALWAYS | {"capture", "journal", "messages"},
    "settle": ALWAYS | {"traces", "capture", "guard", "journal", "messages"},
    "otel": ALWAYS | {"journal", "messages"},
    "runs": ALWAYS | {"settle", "capture", "journal", "messages"},
    "server": ALWAYS | {"runs", "settle", "capture", "journal", "messages", "stores", "view"},
    "timeline": ALWAYS | {"messages"},
    "view": ALWAYS | {"timeline", "messages"},
    "cli": ALWAYS | {"view", "timeline", "otel", "journal", "messages", "stores", "server", "front"},
    "testing": ALWAYS | {"stores", "guard"},
    "demo": ALWAYS | {"front", "view", "guard", "testing"},
    "front": ALWAYS | {"messages", "journal", "guard", "capture", "traces", "settle", "runs", "cli"},
}
"""The table of docs/design.md: what each room may import, in functions and for types included."""
DOORS = {
    (
        "journal.run_journal",
        "settle.resume",
    ): "RunJournal.recover and resume_config, lazy",
    ("journal.run_journal", "settle.settler"): "the type Settlement, which recover returns",
    ("events.run", "view"): "Run._repr_html_",
    ("cli.commands.demo", "demo"): "the command `runjournal demo`",
    ("cli.commands.serve", "demo.chat"): "`runjournal serve --demo`",
    ("cli.doctor_graph", "settle.attached_graph"): "`runjournal doctor --graph`",
}
"""What goes up, by name and with the reason."""
PURE_ROOMS = {"errors", "events", "messages", "redact", "timeline", "view"}
PURE = {
    "capture.callback_data",
    "common.arguments",
    "common.binary",
    "common.json_text",
    "common.masked_urls",
    "common.packed",
    "common.shared_values",
    "common.strict_json",
    "common.text",
    "common.wording",
    "cli.doctor_kinds",
    "guard.bridge",
    "guard.cutoff_notes",
    "guard.projection",
    "guard.repair",
    "guard.strip_requests",
    "journal.event_texts",
    "journal.process_liveness",
    "journal.follow_plan",
    "journal.thread_follow_plan",
    "journal.spool_format",
    "otel.otlp_json",
    "otel.spans",
    "server.cursor",
    "server.dialects",
    "server.dialects.ag_ui",
    "server.dialects.ag_ui.messages",
    "server.dialects.ag_ui.page",
    "server.dialects.ag_ui.projector",
    "server.dialects.ag_ui.request",
    "server.dialects.ag_ui.shown",
    "server.dialects.ai_sdk",
    "server.dialects.ai_sdk.chunks",
    "server.dialects.ai_sdk.projector",
    "server.dialects.ai_sdk.request",
    "server.dialects.ai_sdk.shown",
    "server.dialects.ai_sdk.ui_messages",
    "server.dialects.answer",
    "server.dialects.answer_fold",
    "server.dialects.native",
    "server.dialects.protocol",
    "server.frames",
    "server.langgraph",
    "server.langgraph.described",
    "server.langgraph.modes",
    "server.langgraph.modes.chunks",
    "server.langgraph.modes.messages",
    "server.langgraph.modes.order",
    "server.langgraph.modes.place",
    "server.langgraph.modes.projector",
    "server.langgraph.modes.run_events",
    "server.langgraph.modes.states",
    "server.langgraph.modes.steps",
    "server.langgraph.plain",
    "server.langgraph.protocol",
    "server.langgraph.protocol.messages",
    "server.langgraph.protocol.numbers",
    "server.langgraph.protocol.projector",
    "server.langgraph.protocol.said",
    "server.langgraph.protocol.subscription",
    "server.langgraph.queue_plan",
    "server.langgraph.run_requests",
    "server.langgraph.states",
    "server.langgraph.thread_status",
    "server.openapi",
    "settle.repair_plan",
    "stores.postgres.batch",
    "stores.postgres.names",
    "stores.postgres.run_rows",
    "stores.run_columns",
}
"""Pure modules of rooms that are not pure as a whole."""
IMPURE = {
    "asyncio",
    "concurrent",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "random",
    "selectors",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
CLOCKS = {"datetime.now", "datetime.today", "datetime.utcnow", "date.today"}


SHELLS = {"messages.loading", "messages.tool_evidence"}
"""Modules of pure rooms that are not pure: `loading` logs what it cannot read, and `tool_evidence` loads by it."""


def is_pure(module: str) -> bool:
    return (room_of(module) in PURE_ROOMS and module not in SHELLS) or module in PURE


def is_allowed(one: Import) -> bool:
    here, there = room_of(one.importer), room_of(one.imported)
    return here == there or there in MAY_IMPORT[here] or (one.importer, one.imported) in DOORS


def test_every_module_stands_in_a_room() -> None:
    """The tree holds the rooms of the table, and nothing beside them."""
    assert {room_of(module) for module in modules()} == set(MAY_IMPORT)


def test_imports_go_down() -> None:
    """A room imports only what the table allows, in functions and for types included."""
    assert not sorted({f"{one.importer} imports {one.imported}" for one in imports() if not is_allowed(one)})


def test_every_door_is_used() -> None:
    """A door that no import needs is closed."""
    assert not set(DOORS) - {(one.importer, one.imported) for one in imports()}


def test_the_rooms_have_an_order() -> None:
    """Without the doors, no room can reach itself through others."""
    below = {room: set(there) for room, there in MAY_IMPORT.items()}
    below["cli"] -= {"front"}
    below["front"] -= {"cli"}  # `__main__` starts the command
    while below:
        lowest = {room for room, there in below.items() if not there & set(below)}
        assert lowest, below
        below = {room: there for room, there in below.items() if room not in lowest}


@pytest.mark.parametrize("module", sorted(filter(is_pure, modules())))
def test_pure_modules_stay_pure(module: str) -> None:
    """No clock, thread, socket, database or event loop; and nothing of ours that is not pure itself."""
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & IMPURE
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").partition(".")[0] not in IMPURE
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert f"{node.value.id}.{node.attr}" not in CLOCKS
    assert all(is_pure(one.imported) for one in imports() if one.importer == module)


def test_the_check_of_purity_can_fail() -> None:
    """The modules that are not pure do not pass it."""
    tree = ast.parse(modules()["journal.writer"].read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert found & IMPURE


PRIVATE = re.compile(r"_[a-z]")


def private_uses() -> list[str]:
    """Each `other._private` of a module: an attribute that another module defines with a leading underscore."""
    found = []
    own = {module: _defined(path) for module, path in modules().items()}
    everywhere = set().union(*own.values())
    by_room: dict[str, set[str]] = {}
    for module, names in own.items():
        by_room.setdefault(room_of(module), set()).update(names)
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not PRIVATE.match(node.attr):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue
            if node.attr in everywhere and node.attr not in by_room[room_of(module)]:
                found.append(f"{module}:{node.lineno} {ast.unparse(node)}")
    return found


def _defined(path: Path) -> set[str]:
    """The private names that a module defines: attributes that it sets, methods, functions, variables."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if PRIVATE.match(name)}


def test_no_room_touches_what_another_room_keeps_to_itself() -> None:
    """No `other._private` across rooms, and no private name is imported from another room."""
    named = [f"{one.importer} imports {one.imported}.{one.name}" for one in imports() if PRIVATE.match(one.name)]
    assert not private_uses() + [line for line in named if room_of(line.split()[0]) != room_of(line.split()[2])]


IMPORTED = re.compile(r"from langchain_runjournal(?:\.([a-z_.]+))? import ([A-Za-z_, ]+)")
PUBLIC = {"", "errors", "events", "stores", "stores.memory", "stores.sqlite", "guard", "redact", "server", "view", "testing"}
PUBLIC |= {"otel"}


def test_readme_docs_and_examples_import_what_is_public() -> None:
    """A path is public if it is one of these, and the name stands in its `__all__`."""
    import importlib

    files = subprocess.run(["git", "ls-files", "README.md", "docs", "examples"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in files.stdout.split()] or [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    seen = 0
    for path in paths:
        if path.suffix not in (".md", ".py", ".ipynb"):
            continue
        for match in IMPORTED.finditer(path.read_text("utf-8")):
            seen += 1
            module, names = match[1] or "", [name.split(" as ")[0].strip() for name in match[2].split(",")]
            assert module in PUBLIC, (path, match[0])
            public = importlib.import_module(f"langchain_runjournal.{module}".rstrip("."))
            assert not [name for name in names if name and name not in public.__all__], (path, match[0])
    assert seen > 10
