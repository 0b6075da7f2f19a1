"""A table of what is left of a turn, without and with the journal, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage
from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..common.wording import plural
from .agent import GO_ON
from .screen import STYLES, Screen, shortened, speaker_of, summary
from .side_by_side import Left

NARROW = 72
"""With fewer columns, the two sides stand one below the other."""
WITHOUT, ATTACHED = ("without", "bold red"), ("with the journal", "bold green")


def show_left(screen: Screen, without: Left, attached: Left) -> None:
    """Print two columns; on a narrow screen, two boxes one below the other."""
    screen.end()
    if screen.width < NARROW:
        inner = screen.width - 5
        for left, title in ((without, WITHOUT), (attached, ATTACHED)):
            _table(screen, [title], [_cells(screen, left, inner)])
    else:
        inner = (screen.width - 8) // 2
        _table(screen, [WITHOUT, ATTACHED], [_cells(screen, left, inner) for left in (without, attached)])


def _table(screen: Screen, titles: Sequence[tuple[str, str]], columns: Sequence[Sequence[Group]]) -> None:
    table = Table(box=box.ROUNDED, show_lines=True, border_style="dim", expand=True, padding=(0, 1))
    for title, style in titles:
        table.add_column(Text(title, style), ratio=1)
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    screen.console.print(Padding(table, (0, 0, 0, 1)), width=screen.width, highlight=False)


def _cells(screen: Screen, left: Left, inner: int) -> tuple[Group, Group, Group]:
    room = inner - 8
    holds = _messages(screen, left.thread, room, 2)
    if not any(one.type == "ai" for one in left.thread):
        holds.add_row("", Text("nothing of the answer", style="bold red"))
    sent = _messages(screen, left.sent, room, 1)
    if missing := left.missing():
        is_result = all(one.type == "tool" for one in missing)
        words = ("result is", "results are") if is_result else ("message is", "messages are")
        sent.add_row("", Text(f"{plural(len(missing), *words)} gone", style="bold red"))
    return (
        Group(_heading("The thread holds"), holds),
        Group(Text.assemble(_heading("You write "), (GO_ON, "bold cyan"), _heading(": the model is sent")), sent),
        _answer(screen, left, room),
    )


def _answer(screen: Screen, left: Left, room: int) -> Group:
    if left.refused is not None:
        return Group(_heading("It is never asked"), screen.signs(Text("✗ " + refusal(left), style="bold red")))
    said = _grid()
    said.add_row(Text("agent", style=STYLES["agent"]), screen.signs(Text(shortened(left.answer, 2 * room))))
    return Group(_heading("It answers"), said)


def _heading(text: str) -> Text:
    return Text(text, style="dim")


def refusal(left: Left) -> str:
    """Say in a few words why the provider would refuse the request."""
    problems = str(left.refused.problems).split("; ") if left.refused is not None else []
    if all(problem.endswith("has no result") for problem in problems):
        return f"Refused (error 400): {plural(len(problems), 'tool request')} without a result"
    return f"Refused (error 400): {problems[0]}"


def _messages(screen: Screen, messages: Sequence[BaseMessage], room: int, lines: int) -> Table:
    grid = _grid()
    for message in messages:
        name = speaker_of(message)
        grid.add_row(Text(name, style=STYLES.get(name, "")), screen.marked(*summary(message, room * lines), room))
    return grid


def _grid() -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=6, no_wrap=True)
    grid.add_column()
    return grid
