// Pure: one run as the fold of its events, as far as a chat shows it. Applying an event twice changes nothing: `seq` decides.

/** Return the visible parts of a message: reasoning, text, and tool requests, in their order. */
export function partsOf(content, toolCalls = []) {
  const parts = [];
  const add = (type, text) => {
    if (!text) return;
    if (parts.at(-1)?.type === type) parts.at(-1).text += text;
    else parts.push({ type, text });
  };
  for (const block of typeof content === "string" ? [content] : Array.isArray(content) ? content : []) {
    if (typeof block === "string") add("text", block);
    else if (block?.type === "text") add("text", str(block.text));
    else if (block?.type === "reasoning" || block?.type === "thinking") add("reasoning", reasoningOf(block));
  }
  for (const call of toolCalls ?? []) parts.push({ type: "tool", id: call.id, name: call.name, args: call.args });
  return parts;
}

/** Return the visible words of a message's content. */
export function textOf(content) {
  return partsOf(content).filter((part) => part.type === "text").map((part) => part.text).join("");
}

const str = (value) => (typeof value === "string" ? value : "");

function reasoningOf(block) {
  const said = block.reasoning ?? block.thinking;
  if (typeof said === "string") return said;
  return Array.isArray(block.summary) ? block.summary.map((one) => str(one?.text)).join("\n\n") : "";
}

export class RunFold {
  constructor(runId) {
    this.runId = runId;
    this.seq = 0;
    this.status = "running";
    this.cause = null;
    this.error = null;
    this.isStopping = false;
    this.progress = "";
    this.questions = [];
    this.isResumed = false;
    this.messages = [];
    this.calls = new Map();
    this.tools = new Map();
  }

  get isLive() {
    return this.status === "running";
  }

  /** Return the messages that are to be seen: without helper calls, and without attempts that another one replaced. */
  visible() {
    const replaced = new Set();
    for (const one of this.messages) {
      if (one.parts?.length) one.replaces?.forEach((id) => replaced.add(id));
    }
    return this.messages.filter((one) => one.kind === "human"
      || (one.role !== "helper" && !replaced.has(one.callId) && (one.parts.length || one.isLive)));
  }

  /** Apply an event. Return whether anything changed. */
  apply(event) {
    if (event.seq <= this.seq) return false;
    this.seq = event.seq;
    const hear = HEAR[event.kind];
    if (!hear || (event.data?.late && event.kind !== "llm.tool.result")) return false;
    hear(this, event.data ?? {}, event.call_id);
    return true;
  }

  /** The process of the run has gone: nothing more comes from it. */
  lost() {
    this.end("lost", "crash", null);
  }

  end(status, cause, error) {
    Object.assign(this, { status, cause, error, isStopping: false, progress: "" });
    for (const one of this.messages) {
      if (!one.isLive) continue;
      change(one, { isLive: false, cut: one.parts.length ? cause ?? "error" : null });
    }
    for (const tool of this.tools.values()) {
      if (tool.status === "running") Object.assign(tool, { status: "interrupted" });
    }
  }

  call(callId) {
    let found = this.calls.get(callId);
    if (!found) {
      found = { key: `m:lc_run--${callId}`, kind: "ai", id: null, callId, runId: this.runId, role: "answer", parts: [],
        isLive: true, cut: null, version: 0 };
      this.calls.set(callId, found);
      this.messages.push(found);
    }
    return found;
  }

  tool(id, facts) {
    this.tools.set(id, { ...this.tools.get(id), ...facts });
  }
}

function change(message, facts) {
  Object.assign(message, facts);
  message.version += 1;
}

const PAUSED = new Set(["running", "interrupted"]);
const HEAR = {
  "llm.human.input": (run, data) => {
    const { id = null, content } = data.message?.data ?? {};
    const key = id ? `m:${id}` : `h:${run.runId}:${run.messages.length}`;
    run.messages.push({ key, kind: "human", id, runId: run.runId, content, text: textOf(content), version: 0 });
  },
  "llm.start": (run, data, callId) => {
    const message = run.call(callId);
    change(message, { role: data.role === "helper" ? "helper" : message.role, replaces: data.replaces });
    if (data.role && data.role !== "answer") message.role = "helper";
  },
  "llm.ai.delta": (run, data, callId) => heard(run.call(callId), data),
  "llm.ai.response": (run, data, callId) => {
    const message = run.call(callId), { id, content, tool_calls: calls } = data.message?.data ?? {};
    if (data.role) message.role = data.role === "answer" ? "answer" : "helper";
    change(message, { id: id ?? null, key: id ? `m:${id}` : message.key, parts: partsOf(content, calls), isLive: false, cut: data.cut ? "length" : null });
  },
  "llm.ai.partial": (run, data, callId) => {
    const message = run.call(callId);
    change(message, { isLive: false, cut: message.parts.length ? (data.error ? "error" : data.cause ?? "stop") : null });
  },
  "llm.error": (run, data, callId) => change(run.call(callId), { isLive: false }),
  "tool.start": (run, data) => run.tool(data.tool_call_id, { name: data.name, args: data.args, status: "running", result: null }),
  "llm.tool.result": (run, data) => {
    const { content, status } = data.message?.data ?? {};
    run.tool(data.tool_call_id, { status: status === "error" ? "failed" : "done", result: textOf(content) });
  },
  "tool.error": (run, data) => run.tool(data.tool_call_id, { status: data.interrupted ? "interrupted" : "failed", result: str(data.error) || null }),
  "task.end": (run, data) => {
    for (const id of data.kept ?? []) if (run.calls.has(id)) change(run.calls.get(id), { role: "helper" });
    for (const id of [...(data.gave ?? []), ...(data.shown ?? [])]) if (run.calls.has(id)) change(run.calls.get(id), { role: "answer" });
    for (const message of data.messages ?? []) written(run, message);
  },
  "run.custom": (run, data) => {
    run.progress = progressOf(data.value) || run.progress;
  },
  "run.stop": (run) => {
    run.isStopping = true;
  },
  "run.pause": (run, data) => {
    run.end("paused", null, null);
    run.questions = data.interrupts ?? [];
    for (const tool of run.tools.values()) if (PAUSED.has(tool.status)) tool.status = "waiting";
    for (const message of run.messages) if (message.cut) change(message, { cut: null });
  },
  "run.end": (run, data) => run.end(data.status ?? "completed", data.cause ?? null, data.error ?? null),
};

function heard(message, data) {
  const add = (type, text) => {
    if (!text) return;
    if (message.parts.at(-1)?.type === type) message.parts.at(-1).text += text;
    else message.parts.push({ type, text });
  };
  add("reasoning", str(data.reasoning));
  add("text", str(data.text));
  for (const part of partsOf(data.blocks)) add(part.type, part.text);
  for (const chunk of data.tool_calls ?? []) asked(message, chunk);
  if (typeof data.args === "string") asked(message, { args: data.args, index: data.index });
  message.version += 1;
}

function asked(message, chunk) {
  let part = message.parts.find((one) => one.type === "tool" && (chunk.id ? one.id === chunk.id : one.index === chunk.index));
  if (!part) {
    part = { type: "tool", id: chunk.id ?? null, index: chunk.index, name: chunk.name ?? "", args: "" };
    message.parts.push(part);
  }
  if (typeof part.args === "string") part.args += str(chunk.args);
}

/** Add a message that a node of the graph has written itself. */
function written(run, message) {
  const { id = null, content, tool_calls: calls, tool_call_id: toolCallId, status } = message.data ?? {};
  if (message.type === "tool") {
    run.tool(toolCallId, { status: status === "error" ? "failed" : "done", result: textOf(content) });
    return;
  }
  const known = id && run.messages.find((one) => one.id === id);
  const kind = message.type === "human" ? "human" : "ai";
  const facts = { kind, id, runId: run.runId, role: "answer", content, text: textOf(content), parts: partsOf(content, calls), isLive: false, cut: null };
  if (known) change(known, facts);
  else if (message.type === "ai" || message.type === "human") run.messages.push({ key: `m:${id ?? `${run.runId}:${run.messages.length}`}`, version: 0, ...facts });
}

/** Return what a program says of its progress: a text, or a message in an object. */
function progressOf(value) {
  if (typeof value === "string") return value.slice(0, 200);
  for (const key of ["progress", "status", "message", "text"]) {
    if (typeof value?.[key] === "string") return value[key].slice(0, 200);
  }
  return "";
}
