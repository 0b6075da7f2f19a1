"""Pure: what the agent of `runjournal serve --demo` says."""

from __future__ import annotations

from typing import Final

STORY: Final = """\
Once there was a clerk who wrote down every word that was said in the town, the moment it was said, and not one moment later.

People laughed at him. Why not wait until the speech is over, they asked, and write it down then, clean and whole? He \
shrugged, and went on writing.

One evening the mayor was in the middle of the longest speech of the year when a storm took the roof off the town hall. \
Everybody ran. The mayor forgot what he had wanted to say, and so did everybody else.

In the morning the clerk stood in the ruins, with wet shoes and a dry book. He read out what had been said, up to the very \
word at which the roof had gone. "And then?" asked the people. "Then," said the clerk, "the mayor may continue."

And that is what he did."""

CODE: Final = """\
This is how a graph gets a journal:

```python
async with RunJournal("runs.db") as journal:
    agent = attach(graph, journal)
    handle = await start_run(agent, {"messages": [("user", "Hello")]}, config)
    async for event in handle.events():
        print(event.kind, event.text)
```

`start_run` returns as soon as the run has begun."""

FORMATTED: Final = f"""\
### Where events live

| store | several machines | needs a server |
|:--|:-:|--:|
| SQLite | no | nothing |
| **Postgres** | yes | `psycopg` |
| Redis, Valkey | yes | `redis` |

{CODE}

1. The process is killed.
2. Another one starts:
   - it settles the thread,
   - and says *why* the answer was cut off.
3. You continue.

> Stop loses nothing. More in the [documentation of LangGraph](https://docs.langchain.com/)."""

THOUGHTS: Final = (
    "The question is about birds on a wire. There were eleven. If one flies away, the others may follow, but the question"
    " does not say so. So I subtract one, and say what I assumed."
)

ARABIC: Final = """\
مرحبا! هذا جواب من اليمين إلى اليسار، وفيه كلمة `RunJournal` ورقم 42.

- كل كلمة محفوظة.
- لا شيء يضيع عند التوقف.

| المخزن | عدة أجهزة |
|---|---|
| SQLite | لا |
| Postgres | نعم |"""
