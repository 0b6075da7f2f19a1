"""`runjournal demo`: what a journal does, in fifteen seconds."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import Command, Settings, common

_EPILOG = """\b
Examples:
  runjournal demo
  runjournal demo --directory demo

It takes fifteen seconds, and needs no key and no network.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="See what a journal does.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files here instead of into a temporary directory.",
)
@common
@click.pass_obj
def demo(settings: Settings, directory: Path | None) -> int:
    """Stop and kill an agent, with and without a journal, and show what is left."""
    from ...demo import play

    return play(settings.output.out, directory=directory)
