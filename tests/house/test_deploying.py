"""docs/deploying.md and examples/deploy are true: quoted log lines exist, and what one file names, the other one has."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from langchain_runjournal import RunJournal, start_run
from langchain_runjournal.journal.local_runs import _SETTLING
from tests.house.test_glossary import names, rows
from tests.support.command_line import run
from tests.support.imports import PACKAGE, ROOT, modules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

PAGE = (ROOT / "docs" / "deploying.md").read_text("utf-8")
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text("utf-8"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
WORKER = (DEPLOY / "worker.py").read_text("utf-8")
SERVICES: dict[str, Any] = COMPOSE["services"]
WORKERS = [name for name in SERVICES if name.startswith("worker")]
LEVELS = {"debug", "info", "warning", "error", "exception"}


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None, f"docs/deploying.md has no section {name}"
    return found[1]


# --- the page ---------------------------------------------------------------------------------------------------------


def logged() -> dict[str, set[str]]:
    """Every text that the package passes to a logger, with its levels."""
    found: dict[str, set[str]] = {}
    for path in modules().values():
        tree = ast.parse(path.read_text("utf-8"))
        values = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        # Of `logger.log(level, ...)`, each level that its module names.
        named = {node.attr.lower() for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.isupper()}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in {*LEVELS, "log"}:
                continue
            name: str = node.func.attr  # type: ignore[attr-defined]
            for said in node.args[1:2] if name == "log" else node.args[:1]:
                one = values.get(said.id, said) if isinstance(said, ast.Name) else said
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    levels = named & LEVELS if name == "log" else {"error" if name == "exception" else name}
                    found.setdefault(one.value, set()).update(levels)
    return found


QUOTED = [(names(row[0])[0], row[1]) for row in rows(section("What to watch")) if row[0].startswith("`") and len(row) == 3]


def test_the_page_quotes_log_lines() -> None:
    """Errors, and the warnings that come before them."""
    assert len(QUOTED) > 10
    assert {level for _, level in QUOTED} == {"error", "warning"}


@pytest.mark.parametrize(("line", "level"), QUOTED)
def test_a_quoted_log_line_exists(line: str, level: str) -> None:
    """With its level: an alert on a line that no release logs never fires."""
    assert level in logged().get(line, set()), f"no module logs {line!r} at this level"


def test_the_page_explains_each_part_of_the_example() -> None:
    """Each setting of a worker in the compose file that is not about Docker alone."""
    for name in ("stop_grace_period", "--timeout-graceful-shutdown", "DATABASE_PASSWORD_FILE", "RUNJOURNAL_SPOOL_DIR"):
        assert name in PAGE, name


MANIFESTS: list[dict[str, Any]] = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)]


def test_the_pod_of_the_page_is_the_worker_of_the_example() -> None:
    """Its arguments, variables and probes; each volume that it mounts exists, and the spool is in one."""
    (spec,) = (one["spec"] for one in MANIFESTS if "containers" in one["spec"])
    (worker,) = spec["containers"]
    assert [word for word in command() if word not in worker["args"]] == []
    needs, may = read_by_the_worker()
    env = {one["name"]: one["value"] for one in worker["env"]}
    assert needs <= set(env) <= needs | may
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert f'@app.get("{worker[probe]["httpGet"]["path"]}")' in WORKER
        assert str(worker[probe]["httpGet"]["port"]) == option("--port")
    assert "journal" not in re.findall(r'@app.get\("/alive"\)\n.*\n.*', WORKER)[0]
    mounts = {one["name"]: one["mountPath"] for one in worker["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in spec["volumes"]}
    assert str(Path(env["RUNJOURNAL_SPOOL_DIR"]).parent) == mounts["spool"], "an emptyDir itself is open to all users"
    assert env["DATABASE_PASSWORD_FILE"].startswith(mounts["password"])


def test_the_pod_of_the_page_has_time_to_end() -> None:
    """Its grace period covers preStop, open responses, the grace of a run, and a settlement."""
    (spec,) = (one["spec"] for one in MANIFESTS if "containers" in one["spec"])
    waits = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > waits + time_to_end()


def test_the_job_of_the_page_runs_a_command_that_exists(tmp_path: Path) -> None:
    """With options that it has, and no password in its arguments."""
    (job,) = (one["spec"]["jobTemplate"]["spec"]["template"]["spec"] for one in MANIFESTS if one.get("kind") == "CronJob")
    (container,) = job["containers"]
    words = shlex.split(container["command"][-1])
    asked = words[words.index("runjournal") + 1 :]
    assert asked[0] == "prune"
    with RunJournal(tmp_path / "runs.db"):
        pass
    done = run(*asked, env={"RUNJOURNAL_URL": str(tmp_path / "runs.db"), "RUNJOURNAL_SPOOL_DIR": str(tmp_path)})
    assert done.exit_code == 0, done.output
    assert {one["name"] for one in container["env"]} == {"RUNJOURNAL_URL", "RUNJOURNAL_SPOOL_DIR"}


# --- the compose file ---------------------------------------------------------------------------------------------------


def read_by_the_worker() -> tuple[set[str], set[str]]:
    """The variables that the program needs, and those that it may have."""
    needs = set(re.findall(r'os\.environ\["(\w+)"\](?! =)', WORKER))
    return needs, set(re.findall(r'os\.environ\.get\("(\w+)"', WORKER))


def image_env() -> dict[str, str]:
    return dict(re.findall(r"^ENV (\w+)=(\S+)$", DOCKERFILE, re.M))


def command() -> list[str]:
    found = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.M)
    assert found is not None, "a shell would not pass on SIGTERM"
    words: list[str] = json.loads(found[1])
    return words


def option(name: str) -> str:
    return command()[command().index(name) + 1]


def time_to_end() -> float:
    """How long a worker may take to end: open responses, the grace of a run, settlements."""
    grace = inspect.signature(start_run).parameters["grace"].default
    return float(option("--timeout-graceful-shutdown")) + float(grace) + _SETTLING


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return float(found[1])


def test_there_are_a_database_and_two_workers() -> None:
    """And nothing else; the volumes and secrets that they name are declared, and no others."""
    assert set(SERVICES) == {"postgres", *WORKERS}
    assert len(WORKERS) == 2
    mounted = {volume.partition(":")[0] for one in SERVICES.values() for volume in one["volumes"]}
    assert mounted == set(COMPOSE["volumes"])
    assert {secret for one in SERVICES.values() for secret in one["secrets"]} == set(COMPOSE["secrets"])


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_gets_the_variables_that_it_reads(name: str) -> None:
    """Those that it needs, and none that it does not read."""
    needs, may = read_by_the_worker()
    given = set(SERVICES[name]["environment"]) | set(image_env())
    assert needs <= given <= needs | may


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_connects_to_the_database_of_the_file(name: str) -> None:
    """Host, user and database are those of the service; the password comes from a file, and stands in no variable."""
    server = SERVICES["postgres"]["environment"]
    url = urlsplit(SERVICES[name]["environment"]["RUNJOURNAL_URL"])
    assert (url.scheme, url.hostname, url.username, url.path) == (
        "postgresql",
        "postgres",
        server["POSTGRES_USER"],
        f"/{server['POSTGRES_DB']}",
    )
    assert url.password is None
    secrets = {f"/run/secrets/{secret}" for secret in COMPOSE["secrets"]}
    assert {server["POSTGRES_PASSWORD_FILE"], SERVICES[name]["environment"]["DATABASE_PASSWORD_FILE"]} == secrets
    assert SERVICES[name]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_a_secret_is_in_no_commit() -> None:
    """The file of the secret is ignored by git, and not sent to Docker."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in COMPOSE["secrets"].values():
        path = (DEPLOY / secret["file"]).resolve().relative_to(ROOT.resolve())
        assert any(fnmatch(str(path), f"{line.rstrip('/')}/*") for line in ignored)
        assert not any(fnmatch(str(path), line[1:]) for line in admitted())


@pytest.mark.parametrize("name", WORKERS)
def test_the_spool_lies_in_a_volume(name: str) -> None:
    """In the directory that the image makes for the user of the program, whose permissions a new volume takes."""
    place = image_env()["RUNJOURNAL_SPOOL_DIR"]
    assert [volume.partition(":")[2] for volume in SERVICES[name]["volumes"]] == [place]
    (user,) = re.findall(r"^USER (\w+)$", DOCKERFILE, re.M)
    assert f"install -d -o {user} -g {user} -m 700 {place}" in DOCKERFILE
    assert DOCKERFILE.index("install -d") < DOCKERFILE.index("USER ")


@pytest.mark.parametrize("name", WORKERS)
def test_the_grace_period_is_long_enough(name: str) -> None:
    """Docker waits at least as long as uvicorn, the grace of a run, and a settlement together may take."""
    assert seconds(SERVICES[name]["stop_grace_period"]) > time_to_end()


def test_the_workers_have_ports_of_their_own() -> None:
    """On this machine only; each leads to the port of the program."""
    published = [port.rpartition(":") for name in WORKERS for port in SERVICES[name]["ports"]]
    assert {inside for _, _, inside in published} == {option("--port")}
    assert len({outside for outside, _, _ in published}) == len(WORKERS)
    assert all(outside.startswith("127.0.0.1:") for outside, _, _ in published)


@pytest.mark.parametrize("name", WORKERS)
def test_the_health_check_asks_a_page_that_exists(name: str) -> None:
    """By a program that the image has, at the port of the server, and it compiles."""
    how, program, flag, source = SERVICES[name]["healthcheck"]["test"]
    assert (how, program, flag) == ("CMD", "python", "-c")
    compile(source, "healthcheck", "exec")
    (url,) = re.findall(r"http://[^']+", source)
    assert urlsplit(url).port == int(option("--port"))
    assert f'@app.get("{urlsplit(url).path}")' in WORKER


# --- the Dockerfile -----------------------------------------------------------------------------------------------------


def admitted() -> list[str]:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in lines
    return [line for line in lines if line.startswith("!")]


def copied() -> list[str]:
    return [source for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.M) for source in line.split()[:-1]]


def test_the_image_gets_what_exists() -> None:
    """Each path of a COPY is in the repository, and is sent to Docker."""
    for source in copied():
        assert (PACKAGE if source == PACKAGE.name else ROOT / source).exists(), source
        assert f"!{source}" in admitted()
    assert len(copied()) == len(admitted())
    assert {one["build"]["dockerfile"] for one in map(SERVICES.get, WORKERS) if one} == {"examples/deploy/Dockerfile"}
    assert {(DEPLOY / one["build"]["context"]).resolve() for one in map(SERVICES.get, WORKERS) if one} == {ROOT.resolve()}


def test_the_image_has_what_the_build_of_the_package_reads() -> None:
    """The files that pyproject.toml names for the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", project["readme"], *project["license-files"], "langchain_runjournal"} <= set(copied())


def test_the_image_installs_what_the_project_names() -> None:
    """Extras that exist, and packages in the versions that the tests run with."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (line,) = re.findall(r"^RUN pip install (.+)$", DOCKERFILE, re.M)
    package, *others = [word for word in shlex.split(line) if not word.startswith("--")]
    extras = re.fullmatch(r"\.\[([\w,]+)\]", package)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(document["project"]["optional-dependencies"])
    assert set(others) <= set(document["dependency-groups"]["test"])


def test_the_image_has_what_the_worker_imports() -> None:
    """Each package that the program imports is installed, or comes with the package or one of its dependencies."""
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]  # type: ignore[union-attr]
        for node in ast.walk(ast.parse(WORKER))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    ours = {"fastapi", "langchain_core", "langchain_runjournal", "langgraph", "psycopg", "psycopg_pool"}
    assert imported - set(sys.stdlib_module_names) == ours
    assert "langgraph-checkpoint-postgres" in DOCKERFILE


def test_the_image_starts_the_worker() -> None:
    """With a Python that the project supports, by the name of the module that was copied last."""
    (version,) = re.findall(r"^FROM python:(\d\.\d+)-slim$", DOCKERFILE, re.M)
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"Programming Language :: Python :: {version}" in document["project"]["classifiers"]
    assert command()[:2] == ["uvicorn", f"{Path(copied()[-1]).stem}:app"]
    assert re.search(r"^app = FastAPI\(", WORKER, re.M)
