"""No password of a URL reaches a log line, an error or a `repr`."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal.common.masked_urls import masked, without
from langchain_runjournal.errors import UnknownStore
from langchain_runjournal.stores import open_store

MASKED = {
    "postgresql://me:s3cret@db/app": "postgresql://me:***@db/app",
    "postgres://me:s3cret@db:5432,db2:5433/app?sslmode=require": "postgres://me:***@db:5432,db2:5433/app?sslmode=require",
    "postgresql://me:s3%40c%2Fret@[::1]:5432/app": "postgresql://me:***@[::1]:5432/app",
    "postgresql://me:s3@cret@db/app": "postgresql://me:***@db/app",
    "postgresql:///app?host=/run/postgresql&user=me": "postgresql:///app?host=/run/postgresql&user=me",
    "postgresql:///app?password=s3cret&sslpassword=s3cret&passfile=/f": (
        "postgresql:///app?password=***&sslpassword=***&passfile=/f"
    ),
    "postgresql:///app?p%61ssword=s3cret": "postgresql:///app?p%61ssword=***",
    "postgresql:///app?PASSWORD=s3cret": "postgresql:///app?PASSWORD=***",
    "postgresql://me@db/app": "postgresql://me@db/app",
    "redis://:s3cret@cache:6379/0": "redis://:***@cache:6379/0",
    "rediss://me:s3cret@cache/0?ssl_cert_reqs=required": "rediss://me:***@cache/0?ssl_cert_reqs=required",
    "redis://s3cret@cache/0": "redis://***@cache/0",
    "unix://me:s3cret@/run/redis.sock?db=1": "unix://me:***@/run/redis.sock?db=1",
    "unix:///run/redis@1.sock?password=s3cret": "unix:///run/redis@1.sock?password=***",
    "sqlite:////var/lib/app/runs.db?synchronous=full": "sqlite:////var/lib/app/runs.db?synchronous=full",
    "postgresql://me:s3cret@db/app\n": "postgresql://me:***@db/app",
    " postgresql://me:s3cret@db/app": "postgresql://me:***@db/app",
    "redis://:s3cret@cache/0\n?prefix=a\u2028b": "redis://:***@cache/0%0A?prefix=a%E2%80%A8b",
    "runs.db": "runs.db",
    "C:/runs.db": "C:/runs.db",
}
UNCLEAR = [
    "postgresql://me:s3/cret@db/app",
    "postgresql://me:x@s3/cret@db/app",
    "postgresql://me:s3?cret@db/app",
    "postgresql://me:s3#cret@db/app",
    "postgresql://me:s3cret",
    "postgresql://me:s3cret/app",
    "postgresql://db:5432,me:s3cret/app",
    "postgresql://[s3cret/app",
    "postgresql:me:s3cret@db/app",
    "postgresql:/me:s3cret@db/app",
]


@pytest.mark.parametrize("url", MASKED)
def test_a_password_is_masked_and_nothing_else(url: str) -> None:
    assert masked(url) == MASKED[url]


@pytest.mark.parametrize("url", UNCLEAR)
def test_a_url_that_is_not_clear_is_masked_behind_its_scheme(url: str) -> None:
    assert masked(url) in ("postgresql://***", "postgresql:***")


def test_masking_twice_changes_nothing() -> None:
    for url in (*MASKED, *UNCLEAR):
        assert masked(masked(url)) == masked(url)


@given(st.text(min_size=1), st.sampled_from(["postgresql", "redis", "unix", "mysql"]))
def test_no_part_of_a_password_is_left(password: str, scheme: str) -> None:
    """Encoded as it should be, wherever a password can stand."""
    secret = quote(f"s3cret{password}s3cret", safe="")
    for url in (f"{scheme}://me:{secret}@db/app", f"{scheme}:///app?password={secret}", f"{scheme}://:{secret}@db"):
        assert "s3cret" not in masked(url)


@given(st.text(alphabet="s:/?#@&=;%[]. \n", min_size=1, max_size=8))
def test_no_part_of_a_password_is_left_that_nobody_encoded(middle: str) -> None:
    """A password between the first colon and the last `@`, whatever signs are in it."""
    assert "s3cret" not in masked(f"postgresql://me:s3cret{middle}s3cret@db/app")


def test_a_url_that_no_store_opens_is_masked() -> None:
    with pytest.raises(UnknownStore) as caught:
        open_store("mysql://me:s3cret@db/app")
    assert "s3cret" not in f"{caught.value}{caught.value.values}"


def test_a_short_password_is_masked_as_a_word_only() -> None:
    """Else the words of a message would not be readable."""
    assert without("connection timeout expired", "x") == "connection timeout expired"
    assert without('invalid value "x"', "x") == 'invalid value "***"'
    assert without("invalid value @!.", "@!") == "invalid value ***."
    assert without(r"refused for my\1s3cret", r"y\1s3cret") == "refused for m***"
