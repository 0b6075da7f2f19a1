"""What the journeys share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.company import Company, company_of
from tests.support.machines import need_machines


@pytest.fixture(scope="module")
def companies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Company]]:
    """Found companies, one for each kind of store. The tests of a module share them, and each uses threads of its own."""
    need_machines()
    found: dict[str, Company] = {}
    with ExitStack() as opened:

        def find(journal: str) -> Company:
            if journal not in found:
                found[journal] = opened.enter_context(company_of(tmp_path_factory.mktemp(journal), journal))
            return found[journal]

        yield find


@pytest.fixture
def company(companies: Callable[[str], Company], request: pytest.FixtureRequest) -> Iterator[Company]:
    """Yield a company whose journal is in Postgres, or in the store that the test asks for."""
    found = companies(getattr(request, "param", "postgres"))
    yield found
    found.mend()
    print(found.logs())  # pytest shows it if the test has failed
