// The HTTP API, relative to the page, so that the application can be mounted anywhere.

const BASE = new URL(".", document.baseURI);
const path = (...parts) => new URL(parts.map(encodeURIComponent).join("/"), BASE).href;

/** What the server said in place of an answer. `status` 0: the server cannot be reached. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || (status ? `The server answered with ${status}.` : "The server cannot be reached."));
    this.status = status;
    this.problem = problem ?? {};
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

async function ask(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, { cache: "no-store", ...options });
  } catch {
    throw new Refused(0);
  }
  const type = answer.headers.get("content-type") ?? "";
  const body = type.includes("json") ? await answer.json().catch(() => null) : null;
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

function post(url, body) {
  const json = JSON.stringify(body);
  const headers = { "content-type": "application/json" };
  return ask(url, { method: "POST", headers, body: json, keepalive: json.length < 20_000 });
}

export const threads = async () => (await ask(`${path("threads")}?limit=1000`)).threads ?? [];
export const messages = (thread) => ask(path("threads", thread, "messages"));
/** Delete a conversation; a run that is running is stopped first. */
export const remove = (thread) => ask(`${path("threads", thread)}?force=1`, { method: "DELETE" });
export const begin = (thread, body) => post(path("threads", thread, "runs"), body);
export const stop = (run) => post(path("runs", run, "stop"), {});
export const eventsUrl = (thread) => `${path("threads", thread, "events")}?merge=1`;
export const timelineUrl = (run) => path("runs", run, "timeline");
