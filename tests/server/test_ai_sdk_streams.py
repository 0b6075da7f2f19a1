"""Recorded streams against the real clients: each version's own schema, transport and chat reads them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.server.test_ai_sdk_projector import frames_of
from tests.support.node_clients import install, run
from tests.support.random_stories import RandomRun
from tests.support.ui_stream import read

pytestmark = pytest.mark.slow

VERSIONS = ("ai5old", "ai5", "ai6", "ai7")


@pytest.fixture(scope="module")
def clients() -> Path:
    return install()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_client_reads_random_runs_and_comes_back_anywhere(clients: Path, version: str) -> None:
    """S1, S6, P43, P46: no version refuses a chunk. Cut after any frame, a new page that gets the full replay has the same
    message as one that stayed, in one bubble; from version 6 on, also the page that was cut."""
    rng, streams = random.Random(16), []
    for seed in range(150):
        frames = frames_of(RandomRun(seed))
        places = range(1, len(frames) - 1)
        streams.append({"frames": frames, "cuts": sorted(rng.sample(places, min(8, len(places))))})
    report = run(clients, "streams.mjs", version, given=streams)
    assert len(report) == len(streams)
    assert [problem for one in report for problem in one["problems"]] == []
    for one, stream in zip(report, streams, strict=True):
        ours = read(stream["frames"])
        if ours.id is not None:
            kinds = [part["type"] for part in one["message"]["parts"]]
            assert (one["message"]["id"], kinds) == (ours.id, [part["type"] for part in ours.parts])
            words = [part["text"] for part in one["message"]["parts"] if "text" in part]
            assert words == [part["text"] for part in ours.parts if "text" in part]
        else:
            assert one["message"]["role"] == "user"
