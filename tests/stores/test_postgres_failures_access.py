"""A real Postgres server that refuses a journal: passwords, rights, TLS.

The module beside this one, `test_postgres_failures`, says what each test asserts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from langchain_runjournal import RunJournal, errors
from tests.stores.test_postgres_failures import Programs, no_password_is_logged, programs, spools
from tests.support.command_line import complaint
from tests.support.failing_postgres import (
    PASSWORD,
    certificates,
    hba,
    name_of,
    new_database,
    owned,
    role,
    socket_url,
    started,
    terminate,
    wait_for,
)
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.slow
__all__ = ["no_password_is_logged", "programs", "spools"]

OTHER = "an0ther-Secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that asks for passwords, over TLS or not. The administrator comes by the Unix socket."""
    server = started()
    shutil.copytree(certificates(tmp_path_factory.mktemp("tls")), server.directory / "tls")
    owned(server.directory / "tls")
    yield server
    server.destroy()


@pytest.fixture
def user(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, with a user who needs a password."""
    hba(server, "host all all 127.0.0.1/32 trust")
    url = new_database(server)
    name = role(server, name_of(url))
    hba(server, "host all all all scram-sha-256")
    yield url.replace("postgres:", f"{name}:")
    hba(server, "host all all 127.0.0.1/32 trust")


def user_of(url: str) -> str:
    return url.partition("//")[2].partition(":")[0]


def set_password(server: PostgresServer, url: str, password: str) -> None:
    """Give the user of a URL another password, and end all connections."""
    with psycopg.connect(socket_url(server), autocommit=True) as con:
        con.execute(f"ALTER ROLE {user_of(url)} PASSWORD '{password}'")  # type: ignore[arg-type]
        terminate(con)


def refused(url: str, spools: Path, match: str) -> None:
    """Check that a journal cannot be opened, and that the error has no password."""
    with pytest.raises(errors.StoreUnusable, match=match) as caught:
        RunJournal(url, spool_dir=spools)
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__}"
    assert PASSWORD not in shown
    assert OTHER not in shown


# --- passwords ----------------------------------------------------------------------------------------------------------


def test_a_wrong_password_at_opening(server: PostgresServer, user: str, spools: Path) -> None:
    """The error says what to check: the password, or that there is none."""
    refused(user.replace(PASSWORD, OTHER), spools, "password authentication failed.*Check the user and the password")
    refused(user.replace(f":{PASSWORD}", ""), spools, "no password supplied.*Give a password")
    assert "StoreUnusable" not in server.log()


def test_the_password_of_the_url_is_replaced(
    server: PostgresServer, user: str, programs: Programs, spools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal says why it cannot write, and keeps the events until the program is started with the new password."""
    program = programs(user)
    set_password(server, user, OTHER)
    program.say()
    assert "password authentication failed" in program.flush_fails()
    with pytest.raises(errors.WriteFailed, match="password authentication failed"):
        program.journal.close()
    with RunJournal(user.replace(PASSWORD, OTHER), spool_dir=spools) as later:
        program.reads_all(later)
    assert OTHER not in caplog.text


def test_the_password_of_a_file_is_replaced(
    server: PostgresServer, user: str, programs: Programs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A password file is read again for each connection, so a running program takes the new password."""
    passfile = tmp_path / "pgpass"

    def write(password: str) -> None:
        passfile.write_text(f"*:*:*:*:{password}\n")
        passfile.chmod(0o600)

    write(PASSWORD)
    program = programs(user.replace(f":{PASSWORD}", "") + f"&passfile={passfile}")
    set_password(server, user, OTHER)
    program.say()
    assert "password authentication failed" in program.flush_fails()
    write(OTHER)
    program.everything_is_there()
    assert OTHER not in caplog.text


@pytest.mark.parametrize("right", ["INSERT ON runjournal.events", "USAGE ON SCHEMA runjournal"])
def test_a_right_is_taken_away(server: PostgresServer, user: str, programs: Programs, spools: Path, right: str) -> None:
    """The error names all rights that a role needs, whichever is missing; when it is back, everything is written."""
    all_rights = "grant the role of the URL USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on all its tables"
    program = programs(user)
    with psycopg.connect(socket_url(server, name_of(user)), autocommit=True) as con:
        con.execute(f"REVOKE {right} FROM {user_of(user)}")  # type: ignore[arg-type]
        program.say()
        assert all_rights in program.flush_fails()
        if "USAGE" in right:
            refused(user, spools, all_rights)
            said = complaint("--journal", user, "list")
            assert all_rights in said
            assert PASSWORD not in said
        con.execute(f"GRANT {right} TO {user_of(user)}")  # type: ignore[arg-type]
    program.everything_is_there()


def test_no_database_and_no_right_at_opening(server: PostgresServer, user: str, spools: Path) -> None:
    """Each reason has its own hint."""
    refused(user.replace(name_of(user), "nowhere"), spools, "does not exist.*Create the database")
    refused(user.replace(name_of(user), "postgres"), spools, "permission denied.*CREATE SCHEMA runjournal AUTHORIZATION")
    RunJournal(user, spool_dir=spools).close()
    with psycopg.connect(socket_url(server, name_of(user)), autocommit=True) as con:
        con.execute("ALTER SCHEMA runjournal OWNER TO postgres")
    refused(user, spools, "permission denied.*have it grant the role of the URL USAGE on the schema")
    hba(server, "host all all all reject")
    refused(user, spools, r"pg_hba\.conf")


# --- TLS ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(server: PostgresServer, user: str) -> str:
    """The URL of a database that is reached only by TLS."""
    with psycopg.connect(socket_url(server), autocommit=True) as con:
        use(con, server, "server")
    hba(server, "hostssl all all all scram-sha-256")
    return user.replace("127.0.0.1", "localhost")


def use(con: psycopg.Connection[object], server: PostgresServer, certificate: str) -> None:
    """Have the server show a certificate."""
    files = server.directory / "tls"
    for setting, value in (("ssl_cert_file", files / f"{certificate}.crt"), ("ssl_key_file", files / f"{certificate}.key")):
        con.execute(f"ALTER SYSTEM SET {setting} = '{value}'")  # type: ignore[arg-type]
    con.execute("ALTER SYSTEM SET ssl = on")
    con.execute("SELECT pg_reload_conf()")
    wait_for(lambda: f"{certificate}.crt" in shown(server), "the certificate")


def shown(server: PostgresServer) -> str:
    with psycopg.connect(socket_url(server)) as con:
        return str(con.execute("SELECT current_setting('ssl_cert_file')").fetchone())


def test_tls_is_required(server: PostgresServer, tls: str, programs: Programs, spools: Path) -> None:
    """A journal without TLS is refused, with the option that is missing; with it, an outage ends as without TLS."""
    refused(f"{tls}&sslmode=disable", spools, "no encryption.*sslmode=require")
    ca = server.directory / "tls" / "ca.crt"
    for options in ("sslmode=require", f"sslmode=verify-full&sslrootcert={ca}"):
        program = programs(f"{tls}&{options}")
        with psycopg.connect(socket_url(server), autocommit=True) as con:
            encrypted = con.execute("SELECT count(*) FROM pg_stat_ssl WHERE ssl").fetchone()
            assert encrypted is not None
            assert encrypted[0] > 0
            terminate(con)
        program.say()
        program.everything_is_there()


def test_a_certificate_that_is_not_trusted(server: PostgresServer, tls: str, programs: Programs, spools: Path) -> None:
    """It is refused, whether of another authority or of another name; also while the journal runs."""
    files = server.directory / "tls"
    verified = f"{tls}&sslmode=verify-full&sslrootcert="
    refused(f"{verified}{files / 'other-ca.crt'}", spools, "certificate verify failed.*sslrootcert")
    refused(f"{verified}{files / 'ca.crt'}".replace("localhost", "127.0.0.1"), spools, "does not match host name")
    program = programs(f"{verified}{files / 'ca.crt'}")
    with psycopg.connect(socket_url(server), autocommit=True) as con:
        use(con, server, "other")
        terminate(con)
        program.say()
        assert "certificate verify failed" in program.flush_fails()
        use(con, server, "server")
    program.everything_is_there()


def test_a_server_without_tls(server: PostgresServer, user: str, spools: Path) -> None:
    """A journal that requires TLS does not send its password to a server without it."""
    with psycopg.connect(socket_url(server), autocommit=True) as con:
        con.execute("ALTER SYSTEM SET ssl = off")
        con.execute("SELECT pg_reload_conf()")
        wait_for(lambda: not has_tls(server), "the reload")
    refused(f"{user}&sslmode=require", spools, "does not support SSL.*Switch TLS on")


def has_tls(server: PostgresServer) -> bool:
    with psycopg.connect(socket_url(server)) as con:
        row = con.execute("SELECT current_setting('ssl')").fetchone()
    return row == ("on",)
