"""docs/stranger.md: the files that fifteen change requests touch are there, and few."""

from __future__ import annotations

import re

import pytest

from tests.support.imports import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "stranger.md").read_text("utf-8")
REQUESTS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| \d+ \|.*$", PAGE, re.M)]


def files(cell: str) -> list[str]:
    return re.findall(r"`([a-z_/]+(?:\.py|/))`", cell)


def test_a_request_touches_few_files() -> None:
    """Fifteen requests, at most 2.2 files each on average, as the page says."""
    counts = [len(files(request[2])) for request in REQUESTS]
    assert len(counts) == 15
    assert min(counts) > 0
    assert sum(counts) / len(counts) <= 2.2
    assert f"These are {sum(counts)} files for 15 requests" in PAGE


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request[0])
def test_a_file_of_a_request_exists(request_: list[str]) -> None:
    """Unless the request makes it."""
    missing = [name for name in files(request_[2]) if not (PACKAGE / name).exists()]
    assert missing == re.findall(r"`([a-z_/]+)` \(new\)", request_[2])


def test_the_requests_are_spread_over_the_rooms() -> None:
    """At least ten rooms are asked for."""
    assert len({files(request[2])[0].split("/")[0] for request in REQUESTS}) >= 10
