"""The tasks of a graph: which model calls below them answer the user, recorded as soon as that is known.

Rule: when a task has ended, what it returned decides, and `task.end` records the decision at once, so that a killed process
loses nothing of it. An answer that the innermost task kept does not answer the user. An answer that it returned goes up to
the task around it, which decides when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..common.packed import is_same
from ..events import UNNAMED
from ..messages import answers, task_messages
from ..messages.answers import ModelCall, Reason, Role, Spoken
from ..messages.attempts import Scope
from ..messages.message_data import Data, message_data
from . import callback_data
from .call_tree import Node, Owner, Root
from .lessons import Lessons, graph_key
from .run_endings import RunEndings

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .calling_graph import Caller

logger = logging.getLogger("langchain_runjournal")


class Tasks(RunEndings):
    """The tasks of all runs that a journal captures."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)
        self.lessons = Lessons(self._core)
        self.keeps: dict[str, bool] = {}
        """By the fingerprints of attached graphs: whether their state has `messages`."""
        self._has_complained = False

    def introduce(self, root: Root, owner: Owner, caller: Caller | None, name: str | None) -> None:
        """Set what is known of the graph of a run that begins."""
        root.answers = owner.answers
        if caller is not None:
            root.learns_as, root.learns_durably = graph_key(caller.identity), True
            root.keeps = self.keeps.get(str(caller.identity.fingerprint))
            self.lessons.request(root.learns_as)
        elif name not in (None, UNNAMED):
            root.learns_as = f"name {name}"

    # --- model calls --------------------------------------------------------------------------------------------------

    def listen(self, node: Node, metadata: Mapping[str, Any], tags: Iterable[str], options: Any) -> Spoken:
        """Decide whether a model call that begins answers the user, as far as that is known by now."""
        root, path = node.root, node.path
        if node.inside is None:
            node.inside = self.running_tool(node)
        if not root.scope(node.namespace).replaced_by(node.spot):
            node.counter[0] += 1
        nth = node.counter[0]
        structured, tagged = answers.is_structured(options), callback_data.is_helper(metadata, tags)
        role: tuple[Role, Reason] = "subagent", "unknown"
        if node.inside is None:
            last = path[-1] if path else None
            call = ModelCall(node=last, path=path, tags=tuple(tags), metadata=metadata, model=str(node.model))
            seen = answers.seen_at_start(self.lessons.known, root.learns_as, path, structured, nth)
            role = answers.role_at_start(self._user_says(root, call), seen, structured=structured, tagged=tagged)
        spoken = Spoken(path, structured, tagged, *role, nth=nth, spot=node.spot)
        node.spoken = spoken
        if node.parent is not None:
            node.parent.calls[node.id] = spoken
        return spoken

    def running_tool(self, node: Node) -> str | None:
        """Return the tool call in which a model is called, or an event dispatched, where only its task shows that: to a tool
        that asks for the `config`, LangChain gives that of the task around it. So a tool of the same task that is running is
        the one."""
        found = None
        for other in list(node.root.open.values()):  # also without the lock
            is_tool = other.inside is not None and (other.parent is None or other.parent.inside is None)
            if is_tool and other.place and other.spot == node.spot:
                found = other.inside
        return found

    def _user_says(self, root: Root, call: ModelCall) -> bool | None:
        try:
            return answers.says(root.answers, call)
        except Exception:
            if not self._has_complained:
                self._has_complained = True
                logger.exception("the function given as answers= failed; treating the call as an answer")
            return True

    def hear(self, node: Node, message: Data) -> Data:
        """Note that a model call is complete. Return its role, if the role is another one now."""
        spoken = node.spoken
        if spoken is None:
            return {}
        before = spoken.role
        spoken.fingerprint = task_messages.fingerprint(message)
        asks = bool(spoken.fingerprint["asks"])
        spoken.role, spoken.reason = answers.role_at_end(spoken, self.lessons.known, node.root.learns_as, asks)
        return {"role": spoken.role} if spoken.role != before else {}

    # --- tasks --------------------------------------------------------------------------------------------------------

    def enter(self, node: Node, inputs: Any, metadata: Mapping[str, Any]) -> None:
        """Note that a task begins."""
        root = node.root
        node.is_task, node.place = True, str(metadata.get("langgraph_checkpoint_ns") or "")
        # By the callbacks and not by the namespace, which begins anew in a graph that a node calls on another thread.
        node.is_inner = bool(node.path)
        if not node.is_inner and "langgraph_step" in metadata:
            node.task = {"task": node.namespace, "task_step": metadata["langgraph_step"]}
        node.path = (*node.path, str(node.name))
        node.counter = [0]
        if not node.is_inner:
            node.outer = node.key
        node.had = task_messages.Had(inputs)
        if node.inside is None and not root.over:
            # The state also has the requests of an earlier run, which waited for a human.
            root.requests.update(task_messages.open_requests(inputs))
        if root.keeps is None and not node.is_inner and node.name != "__start__":
            if tuple(metadata.get("langgraph_triggers") or ()) == ("__start__",):
                root.keeps = False  # an entrypoint of the functional API: its state is only what it returns
            elif task_messages.keeps_messages(inputs):
                root.keeps = True

    def finish(self, node: Node, output: Any) -> None:
        """Record that a chain has ended well."""
        root = node.root
        if root.over:
            return
        if not node.is_task:
            if node.parent is not None:
                node.parent.calls.update(node.calls)
            return
        self._take_results(root, node, output)
        if self.cut_calls:
            self.cut_calls.allow(root, task_messages.state_messages(output))
        self._decide(root, node, output)

    def _decide(self, root: Root, node: Node, output: Any) -> None:
        scope = None if "|" in node.place else root.scopes.pop(node.namespace, None)
        had = node.had or task_messages.Had(None)
        # The outermost state proves nothing about the state of a graph inside.
        strict = had.is_state if node.is_inner or root.keeps is None else root.keeps
        fingerprints = {id: spoken.fingerprint for id, spoken in node.calls.items()}
        found = task_messages.split(fingerprints, output, root.requests, had, strict=strict)
        if node.parent is not None:
            node.parent.calls.update({id: one for id, one in node.calls.items() if id not in found.kept})
        if node.inside is not None:
            return
        given = had.without(task_messages.state_messages(output))
        self._learn(root, node, found, given)
        gave, kept, messages = found.gave, list(found.kept), []
        shown = self._shown(root, node, found, given, scope) if strict else []
        kept += [id for id in scope.failed if id not in (*kept, *shown)] if scope is not None else []
        if node.is_inner:
            gave = [id for id in gave if not node.calls[id].is_settled_helper]  # the task around it usually keeps these
        else:
            if strict and node.name != "__start__":
                messages = task_messages.added(output, had, fingerprints, root.given)
            for id in gave:
                self._remember(root, fingerprints[id])
            for message in messages:
                self._remember(root, task_messages.fingerprint(message))
        if gave or kept or messages or shown:
            data: Data = {"node": node.name, "checkpoint_ns": node.place, "gave": gave, "kept": kept}
            data |= {"shown": shown} if shown else {}
            self._put(root, "task.end", {**data, **node.task, "messages": messages} if messages else data)

    def _shown(self, root: Root, node: Node, found: task_messages.Split, given: list[Any], scope: Scope | None) -> list[str]:
        """Return the answers that the user saw, that an error cut off and that no other answer replaced, where the task
        writes a message of its own instead of them. Middleware does that when all attempts have failed, and so does the
        error handler of a node."""
        scope = scope or root.scopes.get(node.namespace)
        if scope is None:
            return []
        prints = [task_messages.fingerprint({"data": vars(one)}) for one in given if task_messages.speaks([one])]
        mine = [(one["words"], one["asks"]) for one in prints]
        if not found.gave:
            # An error handler is a task of its own, beneath the namespace of the node that it stands for.
            scope.give_instead(node.place if node.is_inner else node.namespace, mine)
        shown = [] if node.is_inner else scope.shown(mine)
        root.has_shown = root.has_shown or bool(shown)
        return shown

    def _remember(self, root: Root, fingerprint: Data | None) -> None:
        if fingerprint is not None and fingerprint["id"]:
            root.given[fingerprint["id"]] = fingerprint

    def _learn(self, root: Root, node: Node, found: task_messages.Split, given: list[Any]) -> None:
        """Remember what this task did with answers, for calls that will be cut off. What a task inside of another one
        returns, that one may still keep for itself."""
        gave = () if node.is_inner else found.gave
        # A node that has changed the words of an answer has returned the answer all the same. A node that once returns
        # something else instead proves nothing: next time, it may return the answer of any call that it kept.
        retold = task_messages.retold({id: node.calls[id].fingerprint for id in found.kept}, given)
        in_doubt = not found.gave and not retold and task_messages.speaks(given)
        facts: list[str] = []
        for id in (*gave, *(() if in_doubt else found.kept)):
            spoken = node.calls[id]
            is_given = id in gave or id in retold
            if spoken.fingerprint is not None and spoken.path and not (node.is_inner and is_given):
                facts += answers.facts_of(spoken, gave=is_given)
        if facts and root.learns_as:
            self.lessons.note(root.learns_as, facts, durable=root.learns_durably)

    def break_off(self, node: Node, error: BaseException) -> None:
        """Record that a chain has ended with an error. If the run continues, what the models below the chain said does not
        count."""
        self.tracker.keep_failed(node)
        command = task_messages.parent_command(error)
        if command is not None and not node.root.over:
            # This is not a failure: the chain hands over to another node of the graph around it.
            if node.is_task and not node.is_inner:
                self._decide(node.root, node, command)
            elif node.parent is not None:
                node.parent.calls.update(node.calls)
            return
        if node.calls and not node.root.over:
            failed = node.root.scope(node.namespace).failed
            for id, spoken in node.calls.items():
                failed.setdefault(id, spoken.spot)

    # --- results ------------------------------------------------------------------------------------------------------

    def _take_results(self, root: Root, node: Node, output: Any) -> None:
        """Record the tool messages that a task of the graph returns and that no tool has returned: those for an unknown
        tool, an error that was caught, a human's refusal, a result that middleware has changed."""
        scope = root.scopes.get(node.namespace)
        known = scope.results if scope is not None else {}
        if not known and not root.requests:
            return
        for message in task_messages.tool_messages(output):
            id = message.tool_call_id
            changed = id in known and not is_same(_result_of(known[id]), _result_of(message))
            if changed or id in root.requests:
                data = {"tool_call_id": id, "message": message_data(message)}
                self._result(root, data, None, node.inside)

    def _result(self, root: Root, data: Data, call_id: str | None, inside: str | None) -> None:
        if inside is not None:
            data["inside"] = inside
        else:
            root.requests.discard(data["tool_call_id"])
        self._put(root, "llm.tool.result", data, call_id)


def _result_of(message: Any) -> tuple[Any, ...]:
    """Return what the model or the program sees of a tool message. LangGraph may fill in its name and id later."""
    return message.content, message.artifact, message.status
