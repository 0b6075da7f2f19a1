"""An agent streams an answer, is killed in mid-sentence, and everything that it had shown is read back.

python examples/demo.py
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from langchain_runjournal import Event, RunJournal, is_partial

ANSWER = (
    "A journal keeps what a program did in the order in which it happened. "
    "Whoever comes back later, after a Stop, a closed tab or a crash, reads on from where they left. "
)

AGENT = """
import asyncio, sys
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langchain_runjournal import JournalCallbackHandler, RunJournal

class Slow(GenericFakeChatModel):
    async def _astream(self, *args, **kwargs):
        for chunk in self._stream(*args):
            yield chunk
            await asyncio.sleep(0.02)

model = Slow(messages=iter([sys.argv[2]]))

async def answer(state, config: RunnableConfig):
    return {"messages": [await model.ainvoke(state["messages"], config)]}

graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()

async def main():
    config = {
        "callbacks": [JournalCallbackHandler(RunJournal(sys.argv[1]))],
        "configurable": {"thread_id": "thread-1"},
        "run_name": "demo",
    }
    asked = {"messages": [("user", "What is a journal for?")]}
    async for chunk, _ in graph.astream(asked, config, stream_mode="messages"):
        print(chunk.text, end="", flush=True)  # the user sees it: from here on it must not be lost

asyncio.run(main())
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "runs.db"
        print("An agent streams an answer, and its journal has every token first:\n\n    ", end="", flush=True)
        with subprocess.Popen([sys.executable, "-c", AGENT, str(db), ANSWER], stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            seen = b""
            while len(seen) < 100:
                seen += (letter := agent.stdout.read(1))
                print(letter.decode(), end="", flush=True)
            kill = getattr(signal, "SIGKILL", signal.SIGTERM)
            agent.send_signal(kill)
            seen += agent.stdout.read()  # what was on its way to us
        print(f"\n\nkill -9: the process ended with {agent.returncode}, in mid-sentence and without a word.\n")

        with RunJournal(db) as journal:
            (report,) = journal.recovered or (None,)
            if report is not None:
                print(f"The next one to open the file brought in what was left behind ({report.events} of its events).")
            (run,) = journal.runs(thread_id="thread-1")
            messages = journal.transcript(run.run_id)
            print(f"Run {run.name!r} is {run.status}, with {run.last_seq} events. Its messages, from the journal alone:\n")
            for message in messages:
                mark = " (partial)" if is_partial(message) else ""
                print(f"    {message.type}{mark}: {message.text}")

            claimed = journal.claim(run.run_id)
            print(f"\nIts owner is gone, so it can be taken over (claimed: {claimed}), continued and ended:")
            journal.append(Event(run_id=run.run_id, kind="run.end", data={"status": "interrupted", "cause": "crash"}))
            last = list(journal.follow(run.run_id, after=run.last_seq))
            print(f"    {last[-1]}")
            run = journal.run(run.run_id)
            print(f"    {run.status}, because of a {run.cause}\n")

        if not messages[-1].text.startswith(seen.decode()):
            sys.exit("Something that was shown is missing. That should not be possible: please report it.")
        print(f"Shown: {len(seen)} characters. Missing: 0.")


if __name__ == "__main__":
    main()
