"""The import graph of the package. Every import counts, also those in functions and for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import langchain_runjournal

PACKAGE = Path(langchain_runjournal.__file__).parent
"""The package that is tested, which may be an installed wheel."""
ROOT = Path(__file__).parents[2]
"""The directory of README.md, docs/ and tests/."""
NAME = PACKAGE.name


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports from another one, both as dotted names below the package ("" is the front)."""

    importer: str
    imported: str
    name: str


@cache
def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return each module of the package by its dotted name. A package is named without `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(package: Path = PACKAGE) -> tuple[Import, ...]:
    """Return every import of a module of the package by another one."""
    return tuple(_imports(modules(package)))


def _imports(known: dict[str, Path]) -> Iterator[Import]:
    for importer, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for target, name in _targets(node, importer, is_package=path.name == "__init__.py"):
                full = f"{target}.{name}".lstrip(".")
                imported = full if full in known else target
                if imported in known and imported != importer:
                    yield Import(importer, imported, name)


def _targets(node: ast.AST, importer: str, *, is_package: bool) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.partition(".")[0] == NAME:
                yield alias.name.removeprefix(NAME).lstrip("."), ""
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            base = importer.split(".") if importer else []
            base = base if is_package else base[:-1]
            base = base[: len(base) - (node.level - 1)]
            stem = ".".join([*base, *([node.module] if node.module else [])])
        elif (node.module or "").partition(".")[0] == NAME:
            stem = (node.module or "").removeprefix(NAME).lstrip(".")
        else:
            return
        for alias in node.names:
            yield stem, alias.name


def room_of(module: str) -> str:
    """Return the room of a module; "front" for the package itself and `__main__`."""
    first = module.partition(".")[0]
    return "front" if first in ("", "__main__") else first
