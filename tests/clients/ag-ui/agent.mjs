// An agent of one version of @ag-ui/client: its own HttpAgent, with the few lines of docs/clients/ag-ui.md for a reconnect.

// When a connection breaks, the client cancels its reader, and throws what that reports where nobody can catch it.
process.on('unhandledRejection', (error) => {
  if (!(error instanceof TypeError)) throw error;
});

export const VERSIONS = ['agui1', 'agui0'];

export async function agentOf(version) {
  const { HttpAgent, runHttpRequest, transformHttpEventStream } = await import(version);
  const query = version === 'agui1' ? '?protocolVersion=1.0' : '';

  class JournalAgent extends HttpAgent {
    connect(input) {
      this.abortController = new AbortController(); // the last one may be that of a run which the page has left
      const url = new URL(`../threads/${encodeURIComponent(input.threadId)}/connect${query}`, this.url);
      const init = { headers: this.headers, signal: this.abortController.signal };
      return transformHttpEventStream(runHttpRequest(() => this.fetch(url.href, init)));
    }
  }

  // A page: an agent, what its runs ended with, and what it was told went wrong.
  class Page {
    constructor({ url, threadId, fetch, initialMessages }) {
      this.agent = new JournalAgent({ url, threadId, initialMessages, ...(fetch && { fetch }) });
      this.reset();
      this.listeners = new Set();
      this.agent.subscribe({
        onEvent: ({ event }) => { this.events.push(event); },
        onRunFinishedEvent: ({ event }) => { this.end = event; },
        onRunErrorEvent: ({ event }) => { this.end = event; },
        onRunFailed: ({ error }) => { this.errors.push(String(error)); return { stopPropagation: true }; },
        onCustomEvent: ({ event }) => { this.customs.push(event); },
        onMessagesChanged: () => { for (const listener of this.listeners) listener(); },
      });
    }
    reset() {
      Object.assign(this, { end: undefined, errors: [], customs: [], events: [] });
    }
    get messages() { return this.agent.messages; }
    add(content, id = crypto.randomUUID()) { this.agent.messages.push({ id, role: 'user', content }); }
    async run(parameters) { this.reset(); await this.agent.runAgent(parameters).catch((error) => this.errors.push(String(error))); return this; }
    async connect() { this.reset(); await this.agent.connectAgent().catch((error) => this.errors.push(String(error))); return this; }
    async send(content, parameters) { this.add(content); return this.run(parameters); }
    // Resolves when `is` holds, which is looked at after each change.
    until(is, what = String(is)) {
      return new Promise((resolve, reject) => {
        const fail = () => reject(new Error(`never: ${what}; ${JSON.stringify([this.errors, this.messages]).slice(-900)}`));
        const give = setTimeout(fail, 20000);
        const look = () => {
          if (!is(this)) return;
          clearTimeout(give);
          this.listeners.delete(look);
          resolve();
        };
        this.listeners.add(look);
        look();
      });
    }
  }
  return Page;
}

// A fetch whose connections can be cut: `cuts.now` makes the last one fail.
export function cutting(cuts) {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (!response.body) return response;
    const reader = response.body.getReader();
    const body = new ReadableStream({
      start(controller) {
        cuts.now = () => {
          controller.error(new TypeError('network error'));
          reader.cancel().catch(() => {});
        };
      },
      async pull(controller) {
        const { done, value } = await reader.read().catch(() => ({ done: true }));
        try {
          if (done) controller.close();
          else controller.enqueue(value);
        } catch {} // it was cut
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

export const textOf = (page) => page.messages.filter(({ role }) => role === 'assistant').map(({ content }) => content ?? '').join('|');
export const clean = (value) => JSON.parse(JSON.stringify(value ?? null));

export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}

export const same = (one, other, what) =>
  check(JSON.stringify(clean(one)) === JSON.stringify(clean(other)), `${what}\n  ${JSON.stringify(one)}\n  ${JSON.stringify(other)}`);
