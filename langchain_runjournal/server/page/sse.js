// Server-sent events from bytes, and one stream that comes back by itself. Rule: the cursor moves only after the frame was
// applied, and lives beside the content that it belongs to; a new connection begins exactly behind it.

/** A parser of text/event-stream. `push` returns the whole frames so far as {id, event, data}. */
export class FrameParser {
  constructor() {
    this.rest = "";
    this.frame = {};
    this.lines = [];
  }

  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    return lines.map((line) => this.line(line)).filter(Boolean);
  }

  line(line) {
    if (!line) return this.whole();
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a heartbeat
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "data") this.lines.push(value);
    if (field === "id" || field === "event") this.frame[field] = value;
    return null;
  }

  whole() {
    const frame = { ...this.frame, data: this.lines.join("\n") }, has = this.lines.length > 0;
    this.frame = {};
    this.lines = [];
    return has ? frame : null;
  }
}

const SILENCE = 20_000; // milliseconds; the server sends a heartbeat each 5 s
const LONGEST = 5_000;
const QUIET = 10_000;

/**
 * One stream: it connects, applies frames, and connects again behind the last one until it is closed.
 *
 * `onState` gets "connecting", "open", "waiting" (the connection is lost), "over" (204: nothing to be had now, asked again
 * later), "gone" (404, 410), "refused" (401, 403). Only `close` and the last two end it.
 */
export class EventStream {
  constructor({ url, cursor, onFrame, onState }) {
    Object.assign(this, { url, cursor, onFrame, onState });
    this.isClosed = false;
    this.failures = 0;
    this.controller = null;
    this.wake = null;
  }

  start() {
    this.run();
    return this;
  }

  close() {
    this.isClosed = true;
    this.controller?.abort();
    this.wake?.();
  }

  /** Try again at once, instead of after the pause. */
  hurry() {
    this.wake?.();
  }

  async run() {
    this.state("connecting");
    while (!this.isClosed) {
      const pause = await this.connect();
      if (pause === null || this.isClosed) return;
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, pause);
      });
      this.wake = null;
    }
  }

  state(name) {
    if (!this.isClosed) this.onState(name);
  }

  /** Return the milliseconds until the next attempt, or null if there is none. */
  async connect() {
    this.controller = new AbortController();
    let hasProgress = false;
    try {
      const headers = { accept: "text/event-stream", ...(this.cursor ? { "last-event-id": this.cursor } : {}) };
      const answer = await fetch(this.url, { headers, signal: this.controller.signal, cache: "no-store" });
      if (answer.status === 204) {
        this.failures = 0;
        this.state("over");
        return QUIET;
      }
      if (!answer.ok) return this.failed(answer);
      this.state("open");
      hasProgress = await this.read(answer.body.getReader());
    } catch {
      // The connection failed or was silent for too long: the next one goes on behind the cursor.
    }
    if (hasProgress) this.failures = 0;
    else this.failures += 1;
    if (this.failures > 0) this.state("waiting");
    return hasProgress ? 50 : this.pause();
  }

  failed(answer) {
    if (answer.status === 404 || answer.status === 410) {
      this.state("gone");
      return null;
    }
    if (answer.status === 401 || answer.status === 403) {
      this.state("refused");
      return null;
    }
    this.failures += 1;
    this.state("waiting");
    const asked = Number(answer.headers.get("retry-after"));
    return asked > 0 ? Math.min(asked * 1000, 30_000) : this.pause();
  }

  pause() {
    return Math.min(250 * 2 ** Math.min(this.failures, 6), LONGEST) * (0.75 + Math.random() / 2);
  }

  async read(reader) {
    const decoder = new TextDecoder(), parser = new FrameParser();
    const began = Date.now();
    let hasProgress = false;
    for (;;) {
      const { value, done } = await this.within(SILENCE, reader.read());
      if (done) return hasProgress || Date.now() - began > LONGEST;
      for (const frame of parser.push(decoder.decode(value, { stream: true }))) {
        if (this.isClosed) return true;
        this.onFrame(frame);
        if (frame.id !== undefined) this.cursor = frame.id;
        hasProgress = true;
      }
    }
  }

  within(limit, promise) {
    const timer = setTimeout(() => this.controller.abort(), limit);
    return promise.finally(() => clearTimeout(timer));
  }
}
