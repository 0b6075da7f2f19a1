"""`--part K/N`: suites that share the tests with many parameters run all of them together, and every other test each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import _MANY, part_of

FEW = [f"tests/test_a.py::test_few[{n}]" for n in range(_MANY - 1)]
MANY = [f"tests/test_a.py::test_many[{n}]" for n in range(10 * _MANY)]


def chosen(part: str) -> list[str]:
    items: Any = [SimpleNamespace(nodeid=one) for one in ["tests/test_a.py::test_one", *FEW, *MANY]]
    return [one.nodeid for one in part_of(items, part)]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_parts_together_are_whole(parts: int) -> None:
    """Each cell of a large test runs in exactly one part, in its order; all other tests run in each."""
    found = [chosen(f"{number}/{parts}") for number in range(1, parts + 1)]
    for part in found:
        assert part[: 1 + len(FEW)] == ["tests/test_a.py::test_one", *FEW]
        assert part == sorted(part, key=["tests/test_a.py::test_one", *FEW, *MANY].index)
    assert sorted(one for part in found for one in part[1 + len(FEW) :]) == sorted(MANY)
    assert parts == 1 or all(len(MANY) / parts / 2 < len(part) < len(MANY) for part in found)


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"])
def test_a_part_that_does_not_exist_is_refused(part: str) -> None:
    """It would run nothing, or everything."""
    with pytest.raises(pytest.UsageError, match="--part takes K/N"):
        part_of([], part)
