"""Make the pictures of the timeline: of an agent that is really stopped, and of runs of 1, 9, 45 and 500 calls.

python -m docs.pictures.make        needs playwright and a Chromium (CHROMIUM=path, if it is not found)

If pngquant is installed, the pictures are made smaller with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from playwright.async_api import async_playwright

from langchain_runjournal import RunJournal, attach, start_run
from langchain_runjournal.testing import Call, ScriptedChatModel, Wait
from langchain_runjournal.view import page
from tests.support.large_runs import large_run

HERE = Path(__file__).parent
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {
    "timeline-light": (1000, 1020, "light"),
    "timeline-dark": (1000, 1020, "dark"),
    "timeline-phone": (390, 844, "light"),
}
CALLS = {1: 1, 9: 113, 45: 7, 500: 4}
"""The size of each made run, and its seed."""

looking, never = asyncio.Event(), asyncio.Event()


class RateLimitError(Exception):
    """What a provider raises that is asked too often."""


@tool
async def search_trains(start: str, to: str, day: str) -> str:
    """Trains."""
    await asyncio.sleep(1.0)
    return "ICE 74, departs 07:59, arrives 15:33, direct, 119.90 €\nICE 70, departs 09:59, arrives 17:33, direct, 94.90 €"


@tool
async def search_hotels(city: str, near: str) -> str:
    """Hotels."""
    await asyncio.sleep(2.2)
    looking.set()
    await never.wait()
    return "never"


@tool
async def read_page(address: str) -> str:
    """A page."""
    await asyncio.sleep(0.3)
    return "Rain from noon on, 9 °C"


FORECAST = [
    [Wait(0.2), "I look at the forecast. ", Call("read_page", {"address": "forecast/hamburg"})],
    [Wait(0.3), "Rain from noon on, 9 °C: **take an umbrella**."],
]
forecaster = ScriptedChatModel(FORECAST, pace=0.03, model_name="small")


async def forecast_answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await forecaster.ainvoke(state["messages"], config)]}


researcher = StateGraph(MessagesState).add_node("model", forecast_answer).add_edge(START, "model")
researcher.add_node("tools", ToolNode([read_page]))
researcher.add_conditional_edges("model", tools_condition).add_edge("tools", "model")
forecast_agent = researcher.compile(name="forecast")


@tool
async def forecast(city: str, day: str, config: RunnableConfig) -> str:
    """An agent of its own."""
    found = await forecast_agent.ainvoke({"messages": [("user", f"{city}, {day}")]}, config)
    return str(found["messages"][-1].text)


ASKED = "A train from Zürich to Hamburg on Friday, please, a quiet hotel near the station, and do I need an umbrella?"
ANSWER: list[Any] = [
    Wait(0.4),
    "Three things at once: the direct trains on Friday, hotels with rooms to the courtyard, ",
    Wait(0.15),
    "and the forecast for the afternoon. One moment, I am looking all of it up.",
    Call("search_trains", {"start": "Zürich HB", "to": "Hamburg Hbf", "day": "2026-11-20"}),
    Call("search_hotels", {"city": "Hamburg", "near": "Hauptbahnhof"}),
    Call("forecast", {"city": "Hamburg", "day": "Friday"}),
]
router = ScriptedChatModel([[Wait(0.2), "travel"]], pace=0.02, model_name="small")
busy = ScriptedChatModel(
    [["Three things ", Wait(0.3), RateLimitError("429, too many requests")]], pace=0.03, model_name="large"
)
model = busy.with_fallbacks([ScriptedChatModel([ANSWER], pace=0.025, model_name="large-of-others")])


async def route(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    await router.ainvoke(state["messages"], {**config, "tags": ["nostream"]})
    return {"messages": []}


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


async def stopped() -> str:
    """The page of a run that is stopped in the second of its tools."""
    graph = StateGraph(MessagesState).add_node("route", route).add_edge(START, "route")
    graph.add_node("agent", answer).add_edge("route", "agent")
    graph.add_node("tools", ToolNode([search_trains, search_hotels, forecast]))
    graph.add_conditional_edges("agent", tools_condition).add_edge("tools", "agent")
    async with RunJournal(":memory:") as journal:
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name="travel agent"), journal)
        thread: Any = {"configurable": {"thread_id": "trip-to-hamburg"}}
        handle = await start_run(agent, {"messages": [("user", ASKED)]}, thread, stream_mode="messages")
        await looking.wait()
        run = await journal.astop(handle.run_id, wait=True)
        return page([(run, await journal.aread(run.run_id))])


async def main() -> None:
    html = Path(tempfile.mkdtemp()) / "run.html"
    html.write_text(await stopped(), encoding="utf-8")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name, (width, height, scheme) in SIZES.items():
            size: Any = {"width": width, "height": height}
            tab = await browser.new_page(viewport=size, device_scale_factor=1.25, color_scheme=scheme)  # type: ignore[arg-type]
            await tab.goto(html.as_uri())
            await tab.screenshot(path=HERE / f"{name}.png")
        for calls, seed in CALLS.items():
            html.write_text(page([large_run(calls, seed)]), encoding="utf-8")
            for scheme in ("light", "dark"):
                wide: Any = {"width": 1280, "height": 900}
                tab = await browser.new_page(viewport=wide, color_scheme=scheme)  # type: ignore[arg-type]
                await tab.goto(html.as_uri())
                bottom = await tab.evaluate("document.querySelector('.rj-legend').getBoundingClientRect().bottom + 16")
                clip: Any = {"x": 80, "y": 0, "width": 1120, "height": bottom}
                await tab.screenshot(path=HERE / f"timeline-{calls}-{scheme}.png", clip=clip, full_page=True)
                await tab.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
    if quant := shutil.which("pngquant"):
        made = sorted(map(str, HERE.glob("timeline-*.png")))
        subprocess.run([quant, "--force", "--ext", ".png", "--strip", "--skip-if-larger", "64", *made], check=False)
