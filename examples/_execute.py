"""Run the notebooks beside this file, and save them with their output.

    python examples/_execute.py              in place: their outputs are part of the repository
    python examples/_execute.py --into DIR   as copies, to compare

Each notebook runs in an empty directory. The metadata of Jupyter is removed. Needs nbclient and ipykernel.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


async def execute(path: Path, into: Path) -> None:
    """Run one notebook, and save it into `into`. Raise the error of the first cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as empty:
        client = NotebookClient(notebook, timeout=60, kernel_name="python3", record_timing=False)
        client.resources = {"metadata": {"path": empty}}
        await client.async_execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            output.pop("metadata", None) if output.output_type == "stream" else None
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, into / path.name)


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--into", type=Path, default=HERE)
    into = options.parse_args().into
    await asyncio.gather(*(execute(path, into) for path in sorted(HERE.glob("*.ipynb"))))


if __name__ == "__main__":
    asyncio.run(main())
