// One conversation of this tab: its messages, its one stream, what is on its way. The state is in `Conversation`; this is
// the shell that talks to the server. A request is repeated under the same run id until the server has answered it.

import * as api from "./api.js";
import { Conversation } from "./conversation.js";
import { textOf } from "./fold.js";
import { EventStream } from "./sse.js";
import { uuid } from "./dom.js";

const OUTBOX = "runjournal-outbox:";
const LONGEST = 5_000;

export class Session {
  /** `isNew`: nothing was ever said in this thread, so the server is not asked about it. */
  constructor(threadId, hooks, isNew = false) {
    this.threadId = threadId;
    this.hooks = hooks; // changed(), connection(name), busy(entry), threads(), said(fold)
    this.conversation = new Conversation(threadId);
    this.conversation.isLoaded = this.isNew = isNew;
    this.stream = null;
    this.cursor = null;
    this.isClosed = false;
    this.isKnown = false;
    this.isStopping = null;
    this.reloads = 0;
    this.failures = 0;
  }

  /** Show the thread, follow it, and send what an earlier page of this tab could not. */
  async open() {
    for (const entry of this.outbox()) this.deliver(entry, true);
    if (!this.isNew) await this.load(true);
  }

  close() {
    this.isClosed = true;
    this.pause();
    clearTimeout(this.timer);
  }

  /** Stop listening while nobody looks: a browser has six connections per server. */
  pause() {
    this.stream?.close();
    this.stream = null;
  }

  /** Listen again, behind what is shown. */
  resume() {
    if (this.isClosed || this.stream) return;
    if (this.isKnown) this.follow();
    else if (!this.isNew) this.load(true);
  }

  // --- reading

  async load(isFirst = false) {
    const mine = (this.reloads += 1);
    clearTimeout(this.timer);
    try {
      const over = this.conversation.over();
      const data = await api.messages(this.threadId);
      if (this.isClosed || mine !== this.reloads) return;
      this.failures = 0;
      this.conversation.load(data, over);
      // The stream has what the messages lack, from there on.
      if (isFirst) this.cursor ??= data.cursor ?? null;
      this.isKnown = true;
      this.hooks.changed();
      if (isFirst) this.follow();
    } catch (error) {
      if (!(error instanceof api.Refused)) throw error;
      if (!this.isClosed && mine === this.reloads) this.missed(error, isFirst);
    }
  }

  missed(error, isFirst) {
    if (error.isTemporary) {
      this.hooks.connection("waiting");
      this.failures += 1;
      this.timer = setTimeout(() => this.load(isFirst), Math.min(250 * 2 ** this.failures, LONGEST));
      return;
    }
    this.hooks.connection(error.status === 404 || error.status === 410 ? "gone" : "refused");
    this.hooks.changed();
  }

  follow() {
    if (this.isClosed || this.stream || document.hidden) return;
    const stream = new EventStream({
      url: api.eventsUrl(this.threadId),
      cursor: this.cursor,
      onFrame: (frame) => this.hear(frame),
      onState: (name) => this.connected(name),
    });
    this.stream = stream.start();
  }

  connected(name) {
    if (name === "gone") this.stream = null;
    this.hooks.connection(name, this.conversation.items().length > 0);
    if (name === "open" && this.isStopping) this.stop();
  }

  hear(frame) {
    const before = this.conversation.live;
    const what = this.conversation.frame(frame);
    if (frame.id !== undefined) this.cursor = frame.id;
    if (what === null) return;
    if (what === "reload") {
      if (before && !before.isLive) this.hooks.said(before);
      if (this.isStopping && !this.conversation.live) this.isStopping = null;
      this.hooks.threads();
      this.load();
    }
    this.hooks.changed();
  }

  // --- writing

  /** Send a message. `before`: the id of the message from which on the thread is said anew. */
  send(content, { ifBusy = "reject", before = null } = {}) {
    const entry = { run_id: uuid(), id: uuid(), content, ifBusy, before };
    return this.deliver(entry);
  }

  async deliver(entry, isOld = false) {
    this.keep(entry);
    const item = this.pend(entry, isOld ? "retrying" : entry.ifBusy === "wait" ? "waiting" : "sending");
    if (entry.before) this.conversation.fork(entry.before);
    this.hooks.changed();
    for (let failures = 0; !this.isClosed; failures += 1) {
      try {
        const input = { messages: [{ type: "human", content: entry.content, id: entry.id }] };
        const more = entry.before ? { before: entry.before } : {};
        await api.begin(this.threadId, { input, run_id: entry.run_id, if_busy: entry.ifBusy, ...more });
        this.drop(entry);
        if (item.pendingState !== "waiting") item.pendingState = "sent";
        this.begun(entry.run_id);
        return true;
      } catch (error) {
        if (!(error instanceof api.Refused)) throw error;
        if (!error.isTemporary) return this.refused(entry, item, error);
        item.pendingState = "retrying";
        this.hooks.connection("waiting");
        this.hooks.changed();
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** failures, LONGEST)));
    }
    return false;
  }

  pend(entry, pendingState) {
    const text = typeof entry.content === "string" ? entry.content : textOf(entry.content);
    const item = { key: `m:${entry.id}`, kind: "human", id: entry.id, runId: entry.run_id, content: entry.content, text, pendingState, version: 0 };
    this.conversation.pending = [...this.conversation.pending.filter((one) => one.id !== entry.id), item];
    return item;
  }

  refused(entry, item, error) {
    this.drop(entry);
    this.conversation.hiddenFrom = null;
    if (error.status === 409 && error.problem.run_id) {
      this.forget(item);
      this.hooks.busy({ text: item.text, before: entry.before });
    } else {
      item.pendingState = "refused";
      item.problem = error.message;
    }
    this.hooks.changed();
    return false;
  }

  forget(item) {
    this.conversation.pending = this.conversation.pending.filter((one) => one !== item);
    this.hooks.changed();
  }

  begun(runId) {
    this.isKnown = true;
    this.isNew = false;
    this.cursor ??= `${runId}:0`;
    this.follow();
    this.hooks.threads();
    this.hooks.changed();
    if (this.isStopping === "next") this.stop(runId);
  }

  /** Resume a paused run. Return what went wrong, or null. */
  async answer(continues, value) {
    const runId = uuid();
    for (let failures = 0; ; failures += 1) {
      try {
        await api.begin(this.threadId, { command: { resume: value, continues }, run_id: runId });
        this.begun(runId);
        return null;
      } catch (error) {
        if (!(error instanceof api.Refused)) throw error;
        if (!error.isTemporary || failures > 8) return error.message;
        this.hooks.connection("waiting");
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** failures, LONGEST)));
    }
  }

  /** Stop the run of the thread, or the one that is about to begin. Repeated until the server has heard it. */
  async stop(known = null) {
    const runId = known ?? this.conversation.live?.runId;
    if (!runId) {
      this.isStopping = this.conversation.pending.some((one) => one.pendingState === "sending") ? "next" : null;
      return;
    }
    this.isStopping = runId;
    this.hooks.changed();
    try {
      await api.stop(runId);
    } catch (error) {
      if (!(error instanceof api.Refused)) throw error;
      if (error.isTemporary) setTimeout(() => this.isStopping === runId && !this.isClosed && this.stop(runId), 1000);
      else this.isStopping = null; // it is over
    }
    this.hooks.changed();
  }

  // --- what is on its way, kept for a reload of the page

  outbox() {
    try {
      return JSON.parse(sessionStorage.getItem(OUTBOX + this.threadId)) ?? [];
    } catch {
      return [];
    }
  }

  keep(entry) {
    this.store([...this.outbox().filter((one) => one.id !== entry.id), entry]);
  }

  drop(entry) {
    this.store(this.outbox().filter((one) => one.id !== entry.id));
  }

  store(entries) {
    try {
      if (entries.length) sessionStorage.setItem(OUTBOX + this.threadId, JSON.stringify(entries));
      else sessionStorage.removeItem(OUTBOX + this.threadId);
    } catch {
      // storage is full or forbidden: the message is only in this page
    }
  }
}
