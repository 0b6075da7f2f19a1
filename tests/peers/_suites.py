"""The suites of others: what they need, and the tests that count what the journal adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MODES: Final = ("attach", "handler", "saver")
"""What is put under a suite: every graph attached, a handler in every run, `JournalSaver` around every saver."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tests of one package. `why_not`: the modes that would change nothing in it."""

    package: str
    tests: str = "tests"
    options: tuple[str, ...] = ()
    why_not: Mapping[str, str] = field(default_factory=dict)


OFFLINE: Final = ("--disable-socket", "--allow-unix-socket")
NO_SERVERS: Final = ("-k", "not postgres and not redis")

SUITES: Final = (
    Suite(package="langgraph", options=NO_SERVERS),
    Suite(package="langgraph-prebuilt", options=NO_SERVERS),
    Suite(package="langgraph-checkpoint-sqlite", why_not={"handler": "its tests make no runs"}),
    Suite(package="langchain", tests="tests/unit_tests", options=OFFLINE),
    Suite(
        package="langchain-core",
        tests="tests/unit_tests",
        options=OFFLINE,
        why_not={"attach": "it has no graphs", "saver": "it has no checkpointers"},
    ),
    Suite(package="deepagents"),
)

NEEDS: Final = (
    "aiosqlite",
    "blockbuster>=1.5.18,<1.6",
    "fastmcp",
    "freezegun",
    "grandalf",
    "httpx",
    "langchain-openai",
    "langchain-tests",
    "langgraph-checkpoint-conformance",
    "langgraph-checkpoint-postgres",  # imported by a conftest; its tests are left out
    "langgraph-cli[inmem]",
    "langgraph-sdk",
    "numpy",
    "psycopg[binary]",
    "pycryptodome",
    "pytest-asyncio>=1.3",
    "pytest-benchmark",
    "pytest-codspeed",
    "pytest-dotenv",
    "pytest-mock",
    "pytest-repeat",
    "pytest-retry",
    "pytest-socket",
    "pytest-timeout",
    "pytest-xdist[psutil]",
    "pytest>=9",
    "redis",
    "responses",
    "syrupy>=5,<6",
    "toml",
    "uvloop",
    "vcrpy",
)
"""What the suites need beside their packages: their plugins, and what they import."""

COUNTS: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("langchain-core", "handler"): {
        "tests/unit_tests/runnables/test_config.py::test_merge_config_callbacks": "it counts the handlers of a run",
    },
}
"""By package and mode, the tests that may fail, without their parameters, and why: each counts or names the handlers of a
run, or looks at the type of a checkpointer."""
