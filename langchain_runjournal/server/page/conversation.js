// Pure: a thread as the page shows it: the messages that the thread holds, and behind them the runs that are not in there
// yet, folded from their events. The same message in both is shown once.

import { partsOf, RunFold, textOf } from "./fold.js";

export class Conversation {
  constructor(threadId) {
    this.threadId = threadId;
    this.stored = [];
    this.results = new Map();
    this.folds = new Map();
    this.pending = [];
    this.questions = [];
    this.pausedRun = null;
    this.hiddenFrom = null;
    this.endings = new Map();
    this.isLoaded = false;
  }

  /** Take the messages of the thread. `over`: the ids of the runs that had ended when they were asked for. */
  load(data, over = []) {
    const { items, results } = storedItems(data.messages ?? []);
    const known = new Map(this.stored.map((one) => [one.key, one]));
    this.stored = items.map((one) => (known.get(one.key)?.facts === one.facts ? known.get(one.key) : one));
    this.results = results;
    this.questions = data.questions ?? [];
    this.pausedRun = data.run?.status === "paused" ? data.run.run_id : null;
    this.isLoaded = true;
    const held = new Set(items.map((one) => one.runId));
    for (const runId of over) {
      const fold = this.folds.get(runId);
      if (!fold || fold.isLive || (fold.status === "paused" && !held.has(runId))) continue;
      this.endings.set(runId, { status: fold.status, cause: fold.cause, error: fold.error });
      if (fold.status !== "lost") this.folds.delete(runId);
    }
    this.hiddenFrom = items.some((one) => one.id === this.hiddenFrom) ? this.hiddenFrom : null;
    this.settlePending();
  }

  /** Apply a frame of the thread's stream. Return "reload" if the messages of the thread have changed, too. */
  frame(frame) {
    const data = parsed(frame.data);
    if (data === null) return null;
    if (frame.event === "reset") return this.reset();
    if (frame.event === "interrupted") {
      this.folds.get(data.run_id)?.lost();
      return "reload";
    }
    if (frame.event !== undefined || !data.run_id) return null;
    const [, seq] = (frame.id ?? "").match(/:(\d+)(?:\.\d+)?$/) ?? [];
    let fold = this.folds.get(data.run_id);
    if (!fold) {
      fold = new RunFold(data.run_id);
      for (const one of this.folds.values()) one.isResumed = true; // a question that another run has answered, or left
      this.folds.set(data.run_id, fold);
      this.questions = [];
    }
    fold.apply({ ...data, seq: seq ? Number(seq) : data.seq });
    if (data.kind === "run.start" || data.kind === "llm.human.input") this.settlePending();
    return ["run.start", "run.end", "run.pause"].includes(data.kind) ? "reload" : "changed";
  }

  /** The stream begins again: everything comes once more. */
  reset() {
    this.folds.clear();
    return "reload";
  }

  /** What was sent and is now part of a run, or of the thread, is no longer pending. */
  settlePending() {
    const known = new Set([...this.stored.map((one) => one.id), ...this.folded().map((one) => one.id)]);
    this.pending = this.pending.filter((one) => !known.has(one.id));
    if (this.folded().some((one) => one.id === this.replacedBy)) this.replacedBy = null;
  }

  folded() {
    return [...this.folds.values()].flatMap((fold) => fold.visible());
  }

  get live() {
    return [...this.folds.values()].findLast((fold) => fold.isLive) ?? null;
  }

  /** Return the ids of the runs that are over, for `load`. */
  over() {
    return [...this.folds.values()].filter((fold) => !fold.isLive).map((fold) => fold.runId);
  }

  /** Return what waits for a human: {runId, interrupts}, or null. */
  question() {
    if (this.live || this.pending.length) return null;
    const paused = [...this.folds.values()].findLast((fold) => fold.status === "paused" && !fold.isResumed);
    const interrupts = paused?.questions.length ? paused.questions : this.questions;
    return interrupts.length ? { runId: paused?.runId ?? this.pausedRun, interrupts } : null;
  }

  /** Return all messages in their order, each once. */
  items() {
    const cut = this.hiddenFrom === null ? -1 : this.stored.findIndex((one) => one.id === this.hiddenFrom);
    const stored = cut < 0 ? this.stored : this.stored.slice(0, cut), folded = this.folded();
    const known = new Set(stored.map((one) => one.key));
    const gone = new Set(cut < 0 ? [] : this.stored.slice(cut).map((one) => one.key));
    const rest = folded.filter((one) => !known.has(one.key) && !gone.has(one.key));
    return [...stored, ...rest, ...this.pending];
  }

  /** Return what is known of a tool call: {status, result, name, args}; only the status while it is just requested. */
  tool(id) {
    for (const fold of [...this.folds.values()].reverse()) {
      const found = fold.tools.get(id);
      if (found) return found;
    }
    return this.results.get(id) ?? { status: this.live ? "asked" : this.question() ? "waiting" : "interrupted" };
  }

  /** Return how the run of an answer ended, as far as this page has seen it. */
  ending(runId) {
    return this.folds.get(runId) ?? this.endings.get(runId) ?? null;
  }

  /** Hide the messages from this one on: a run that began before it is on its way. */
  fork(messageId) {
    this.hiddenFrom = messageId;
  }
}

let loads = 0;

/** Return what the messages of a thread show. `facts` is the message itself: one that has not changed stays the same item. */
function storedItems(messages) {
  const items = [], results = new Map();
  for (const message of messages) {
    const mark = message.provenance ?? null, isPartial = mark?.origin === "partial";
    const base = { key: `m:${message.id}`, id: message.id ?? null, runId: message.run_id ?? mark?.run_id ?? null, version: (loads += 1) };
    if (message.type === "tool") {
      const isSynthetic = mark?.origin === "synthetic";
      const status = isSynthetic ? "interrupted" : message.status === "error" ? "failed" : "done";
      results.set(message.tool_call_id, { status, result: message.text ?? textOf(message.content), name: message.name });
    } else if (message.type === "human") {
      const content = message.content ?? message.text;
      items.push({ ...base, kind: "human", content, text: message.text ?? textOf(content), facts: JSON.stringify(message) });
    } else if (message.type === "ai" || message.type === "AIMessageChunk") {
      const parts = partsOf(message.content ?? message.text, message.tool_calls);
      const cut = isPartial ? mark.reason ?? "stop" : null;
      if (parts.length) items.push({ ...base, kind: "ai", parts, isLive: false, cut, facts: JSON.stringify(message) });
    }
  }
  return { items, results };
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}
