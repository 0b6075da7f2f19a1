"""The notebooks: they run, and what they show in the repository is what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.look]

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
OF_A_MACHINE = re.compile(r"(?<![\w.:/])/(?:tmp|home|root|work|Users|var|usr|opt|mnt)/|[A-Z]:\\")
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
TIMES = re.compile(r"_at=[\d.]+")
EVENTS = re.compile(r"last_seq=\d+")  # a checkpoint more or less, when the process was killed
USAGE = re.compile(r"usage=\{.*\}\)$" if sys.version_info < (3, 11) else "$^")
"""There, create_agent does not hand on callbacks to its model: see docs/limits.md."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", ())]


def said(notebook: Any) -> list[list[str]]:
    """What each cell says, but for what is another in each run."""
    cells = []
    for cell in notebook["cells"]:
        texts = (text(one["text"] if "text" in one else one["data"]["text/plain"]) for one in cell.get("outputs", ()))
        cells.append([USAGE.sub("", EVENTS.sub("", TIMES.sub("", IDS.sub("ID", one)))) for one in texts])
    return cells


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebooks, as nbmake executes them now."""
    missing = [name for name in ("nbmake", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"needs {' and '.join(missing)}")
    into, home = tmp_path_factory.mktemp("fresh"), tmp_path_factory.mktemp("home")
    for path in NOTEBOOKS:
        shutil.copy(path, into)
    places = {name: str(home) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR")}
    # A pytest of its own: in this one, every warning of Jupyter's would be an error.
    command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", "--nbmake-timeout=60", "-q", "-c", os.devnull]
    command += ["--rootdir", str(into), "-p", "no:cacheprovider", str(into)]
    done = subprocess.run(command, cwd=into, env={**os.environ, **places}, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout
    return into


def test_there_are_three_in_the_order_of_a_story() -> None:
    """And each but the last leads to the next one."""
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3"]
    for path, then in zip(NOTEBOOKS, [*NOTEBOOKS[1:], ROOT / "examples" / "server.py"], strict=True):
        assert f"]({then.name})" in text(load(path)["cells"][-1]["source"])


@by_name
def test_what_is_committed_can_be_read(path: Path) -> None:
    """Every cell has been executed, in order, without an error or a warning; nothing tells of a machine; and it is small."""
    notebook = load(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert len(outputs(notebook)) >= 4
    for output in outputs(notebook):
        assert output["output_type"] in ("stream", "execute_result")
        assert output.get("name", "stdout") == "stdout"
    assert OF_A_MACHINE.findall(path.read_text(encoding="utf-8")) == []
    assert path.stat().st_size < 200_000
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert notebook["metadata"]["language_info"] == {"name": "python"}


@by_name
def test_each_says_how_to_take_a_real_model(path: Path) -> None:
    """Two lines, in the place of one import and of one assignment, and nothing else."""
    code = [text(cell["source"]) for cell in load(path)["cells"] if cell["cell_type"] == "code"]
    [cell] = [source for source in code if "# For a real model, these two lines" in source]
    lines = cell.partition("# For a real model")[2].splitlines()[1:3]
    assert lines == ["# from langchain.chat_models import init_chat_model", '# model = init_chat_model("openai:gpt-5")']
    assert len(re.findall(r"^model = ScriptedChatModel\(.*\)$", cell, re.M)) == 1


@by_name
def test_a_run_shows_itself(path: Path, fresh: Path) -> None:
    """The last thing that each shows is the picture of a run, today as in the repository."""
    for notebook in (load(path), load(fresh / path.name)):
        shown = [output["data"] for output in outputs(notebook) if "data" in output][-1]
        html, plain = text(shown["text/html"]), text(shown["text/plain"])
        assert html.lstrip().startswith("<")
        assert "cut off" in html
        assert plain.startswith("Run(")
        assert IDS.findall(plain)[0] in html


@by_name
def test_what_is_committed_is_what_it_says_now(path: Path, fresh: Path) -> None:
    """Each cell says the same as in the repository, but for ids and times. If that is wanted: `make notebooks`."""
    committed, now = load(path), load(fresh / path.name)
    assert [cell["source"] for cell in now["cells"]] == [cell["source"] for cell in committed["cells"]]
    assert said(now) == said(committed)
