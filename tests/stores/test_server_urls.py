"""What is wrong with the URL of a server is said when a journal is opened, without its password."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal, errors, stores
from langchain_runjournal.common.masked_urls import masked
from langchain_runjournal.stores import path_of
from langchain_runjournal.stores.postgres.address import address_of
from langchain_runjournal.stores.redis.urls import settings_of
from tests.support.command_line import complaint, run
from tests.support.servers import postgres_url, redis_url

NOT_ENCODED = [
    "postgresql://me:s3/cret@db/app",
    "postgresql://me:12/s3cret@db/app",
    "postgresql://me:s3?cret@db/app",
    "postgresql://me:12?s3cret@db/app",
    "postgresql://me:12?s3cret=@db/app",
    "postgresql://me:12?busy_timeout=5&s3cret=@db/app",
    "postgresql:///me:s3cret@db/app",
    "postgresql://db/app?user=me&password=s3&cret",
    "postgresql://db:s3cret/app",
    "redis://:s3/cret@cache/0",
    "redis://:12/s3cret@cache/0",
    "redis://:s3?cret@cache/0",
    "redis://:12?s3cret@cache/0",
    "redis://:12?s3cret=@cache/0",
    "redis://:s3#cret@cache/0",
    "redis://:12#s3cret@cache/0",
    "redis://:[s3cret@cache/0",
    "redis:///me:s3cret@cache/0",
    "redis://cache/0?password=s3&cret",
    "redis://cache:s3cret/0",
]
NEARLY_URLS = [
    '"postgresql://me:s3cret@db/app"',
    "'redis://:s3cret@cache/0'",
    ' "postgresql://me:s3cret@db/app"',
    "postgres//me:s3cret@db/app",
    "\tpostgresql+psycopg//me:s3cret@db/app",
    "REDISS//:s3cret@cache",
    "DATABASE_URL=postgresql://me:s3cret@db/app",
    "export=redis://:s3cret@cache/0",
]
NO_PATHS = [
    ("me:s3cret@db/app", "no store for the scheme 'me'"),
    ("m:s3cret@db/app", "a URL without its scheme"),
    ("me@tenant:s3cret@db:5432/app", "a URL without its scheme"),
    ("127.0.0.1:6379,password=s3cret,ssl=False", "is a connection string and not a URL"),
    ("Server=db;User Id=me;Pwd=s3cret", "is a connection string and not a URL"),
    ("postgresql://me@db/app&password=s3cret", "begin with & and not with ?"),
    ("redis://cache/0&password=s3cret&db=1", "begin with & and not with ?"),
]
PATHS = [
    "a:b.db",
    "C:\\data\\me@home.db",
    "c:me@home.db",
    "./x:y/me@home.db",
    "data/me@home:1.db",
    "my password.db",
    "R&D=1.db",
]
USUAL = [
    "postgresql://me:s3%2Fcret@db:5432,[::1]:5433/app?sslmode=require&application_name=a@b",
    "postgresql:///app?host=/run/postgresql&user=me@tenant&password=s3cret",
    "postgresql://me:s3#cret@db/app",
    "postgres://db",
    "redis://me:s3%40cret@cache:6379/0?client_name=a",
    "redis://cache/0?username=me@tenant&password=s3cret",
    "rediss://[::1]:6379?ssl_ca_certs=/etc/ca.pem",
    "unix://me:s3cret@/run/redis@1.sock?db=1",
]


@pytest.mark.parametrize("url", NOT_ENCODED)
def test_a_sign_that_was_not_encoded(url: str) -> None:
    """The error says so. It names neither an option nor a host that is the rest of a password."""
    with pytest.raises(errors.UnknownStore) as caught:
        RunJournal(url)
    assert "must be percent-encoded" in str(caught.value)
    for part in ("s3", "cret"):
        assert part not in "".join(traceback.format_exception(caught.value)).replace(url, "")
        assert part not in masked(url)


@pytest.mark.parametrize("url", USUAL)
def test_a_usual_url_is_accepted(url: str) -> None:
    """Also with an `@` where it does not end a password."""
    read = address_of if url.startswith("postgres") else settings_of
    assert "s3" not in f"{read(url)!r}{read(url).url}"


@pytest.mark.parametrize("url", NEARLY_URLS)
def test_what_is_nearly_a_url_is_no_path(url: str) -> None:
    """It comes from a file of variables whose quotation marks nobody removed. As a path, it would be shown."""
    for use in (RunJournal, path_of):
        with pytest.raises(errors.UnknownStore, match="begins with its scheme and ://") as caught:
            use(url)
        assert "cret" not in f"{caught.value}{caught.value.values}"


@pytest.mark.parametrize(("url", "said"), NO_PATHS)
def test_what_holds_a_password_is_no_path(url: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms of other drivers, and slips of the hand: no file gets such a name, and no error shows it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.UnknownStore, match=re.escape(said)) as caught:
        RunJournal(url)
    assert "cret" not in f"{caught.value}{caught.value.values}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_may_have_these_signs(path: str) -> None:
    """A colon, an `@` and an `&` alone do not make a URL."""
    assert path_of(path) == Path(path)


@pytest.mark.parametrize("make", [postgres_url, redis_url])
def test_white_space_around_a_url_is_ignored(make: Callable[[], str]) -> None:
    """A mounted file ends with a line break. Neither the command nor a repr nor a log line shows it."""
    url = make()
    for before, after in (("", "\n"), ("", " \r\n"), (" ", ""), ("\n\t", "\n")):
        assert f"{url} holds no journal" in complaint("--journal", f"{before}{url}{after}", "list")
    with RunJournal(url) as journal, RunJournal(f" {url}\n") as other:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.flush()
        assert (other.url, repr(other)) == (url, f"RunJournal({url!r})")
        assert [one.run_id for one in other.runs()] == ["r"]
        assert run("list", "--journal", f"{url}\n").exit_code == 0
        assert run("list", "--journal", f" {url}?busy_timeout=3 ").exit_code == 0


def test_white_space_around_the_url_of_a_file(tmp_path: Path) -> None:
    """The name of the file does not contain it. A path may have any name."""
    for url in (f"sqlite:///{tmp_path}/runs.db\n", f" sqlite:///{tmp_path}/runs.db "):
        assert path_of(url) == tmp_path / "runs.db"
        RunJournal(url).close()
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]
    assert path_of("runs.db ") == Path("runs.db ")


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:s3cret@db/app\n?schema=one", "redis://:s3cret@cache/0\n?prefix=one", "redis://:s3\ncret@cache/0"],
)
def test_a_line_break_inside_a_url(url: str) -> None:
    """It is refused, and no error has a line break of its own."""
    for use in (RunJournal, stores.exists):
        with pytest.raises(errors.UnknownStore, match="a line break or another invisible sign stands in it") as caught:
            use(url)
        assert "cret" not in f"{caught.value}"
        assert "\n" not in f"{caught.value}{caught.value.url}"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("postgresql://127.0.0.1:99999/app", "Correct the port"),
        ("postgresql://127.0.0.1:0/app", "Correct the port"),
        ("postgresql://127.0.0.1/app?connect_timeout=soon", "Correct the options"),
        ("postgresql://127.0.0.1/app?keepalives_idle=soon", "Correct the options"),
        ("postgresql://127.0.0.1/app?sslmode=some", "Correct the options"),
        ("postgresql://127.0.0.1/app?target_session_attrs=some", "Correct the options"),
    ],
)
def test_a_wrong_value_is_no_server_that_is_away(url: str, hint: str) -> None:
    """No server has to be started: the URL has to be corrected."""
    with pytest.raises(errors.StoreUnusable, match=hint):
        RunJournal(url)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("postgresql://db/app?busy_timeout=3&busy_timeout=4", "A Postgres URL got the option 'busy_timeout' twice"),
        ("postgresql://db/app?password=s3cret&host=a&p%61ssword=other", "A Postgres URL got the option 'password' twice"),
        ("redis://cache/0?busy_timeout=3&prefix=a&busy_timeout=3", "A Redis URL got the option 'busy_timeout' twice"),
        ("redis://cache/0?password=s3cret&password=other", "A Redis URL got the option 'password' twice"),
    ],
)
def test_an_option_that_is_given_twice(url: str, what: str) -> None:
    """Whoever wrote it takes the other one of them for valid. The error shows no value: it may be a password."""
    for use in (RunJournal, stores.exists):
        with pytest.raises(errors.InvalidArgument, match=rf"^{what}\. Give it once\.$") as caught:
            use(url)
        assert "s3cret" not in f"{caught.value!r}{caught.value.values}"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("pg_x", "a name that does not begin with pg_, which Postgres keeps for itself"),
        ("a-b", "letters, digits and underscores, at most 63"),
    ],
)
def test_a_name_that_no_schema_can_have(schema: str, expected: str) -> None:
    """Each reason is said."""
    with pytest.raises(errors.InvalidArgument, match=rf"^schema must be {expected}, but '{schema}' was given\.$"):
        RunJournal(f"postgresql://db/app?schema={schema}")


@pytest.mark.parametrize("url", ["redis://cache/0?ssl_ca_certs=/ca.pem", "unix:///redis.sock?ssl_cert_reqs=none"])
def test_options_of_tls_need_tls(url: str) -> None:
    """The driver would raise a TypeError."""
    with pytest.raises(errors.UnknownStore, match="only rediss:// uses TLS and has the option ssl_"):
        RunJournal(url)


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_a_short_password_does_not_mask_letters(scheme: str) -> None:
    """An error about a server that does not answer stays readable."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"me:i@127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.StoreUnreachable, match=r"(?i:timeout)") as caught:
            RunJournal(f"{scheme}://{address}/0?busy_timeout=0.5")
    assert caught.value.values["reason"].count("*") == 0
