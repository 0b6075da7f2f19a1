"""Make the pictures of the time line: an agent is really stopped, and its page is looked at in Chromium.

python docs/pictures/make.py        needs playwright and a Chromium (CHROMIUM=path, if it is not found)
"""

from __future__ import annotations

import asyncio
import os
import shutil
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

HERE = Path(__file__).parent
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SIZES = {"timeline-light": (900, 1180, "light"), "timeline-dark": (900, 1180, "dark"), "timeline-phone": (390, 844, "light")}

looking, never = asyncio.Event(), asyncio.Event()


@tool
async def search_trains(start: str, to: str, day: str) -> str:
    """Trains."""
    await asyncio.sleep(1.0)
    return "ICE 74, departs 07:59, arrives 15:33, direct, 119.90 €\nICE 70, departs 09:59, arrives 17:33, direct, 94.90 €"


@tool
async def search_hotels(city: str, near: str) -> str:
    """Hotels."""
    await asyncio.sleep(1.6)
    looking.set()
    await never.wait()
    return "never"


@tool
async def weather(city: str, day: str) -> str:
    """The forecast."""
    await asyncio.sleep(0.4)
    return "Rain from noon on, 9 °C"


ASKED = "A train from Zürich to Hamburg on Friday, please, a quiet hotel near the station, and do I need an umbrella?"
ANSWER: list[Any] = [
    Wait(0.4),
    "Three things at once: the direct trains on Friday, hotels with rooms to the courtyard, ",
    Wait(0.15),
    "and the forecast for the afternoon. One moment, I am looking all of it up.",
    Call("search_trains", {"start": "Zürich HB", "to": "Hamburg Hbf", "day": "2026-11-20"}),
    Call("search_hotels", {"city": "Hamburg", "near": "Hauptbahnhof"}),
    Call("weather", {"city": "Hamburg", "day": "Friday"}),
]
model = ScriptedChatModel([ANSWER], pace=0.025)


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


async def stopped() -> str:
    """The page of a run that is stopped in the third of its tools."""
    graph = StateGraph(MessagesState).add_node("model", answer).add_edge(START, "model")
    graph.add_node("tools", ToolNode([search_trains, search_hotels, weather]))
    graph.add_conditional_edges("model", tools_condition).add_edge("tools", "model")
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
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
