// A chat of one version of the AI SDK without a page: its own AbstractChat and DefaultChatTransport, unmodified.

export const VERSIONS = ['ai5old', 'ai5', 'ai6', 'ai7'];

class State {
  constructor(messages) {
    this.status = 'ready';
    this.error = undefined;
    this.messages = messages;
    this.listeners = new Set();
  }
  get messages() { return this._messages; }
  set messages(messages) { this._messages = messages; this.changed?.(); }
  get status() { return this._status; }
  set status(status) { this._status = status; this.changed?.(); }
  pushMessage(message) { this.messages = [...this.messages, message]; }
  popMessage() { this.messages = this.messages.slice(0, -1); }
  replaceMessage(index, message) {
    this.messages = [...this.messages.slice(0, index), structuredClone(message), ...this.messages.slice(index + 1)];
  }
  snapshot(value) { return structuredClone(value); }
  changed() { for (const listener of this.listeners ?? []) listener(); }
}

export async function chatOf(version) {
  const ai = await import(version);
  class Chat extends ai.AbstractChat {
    constructor({ messages = [], ...options }) {
      const state = new State(messages);
      super({ ...options, state });
      this.own = state;
    }
    // Resolves when `is` holds, which is looked at after each change.
    until(is, what = String(is)) {
      return new Promise((resolve, reject) => {
        const give = setTimeout(() => reject(new Error(`never: ${what}; ${JSON.stringify(this.messages).slice(-900)}`)), 20000);
        const look = () => {
          if (!is(this)) return;
          clearTimeout(give);
          this.own.listeners.delete(look);
          resolve();
        };
        this.own.listeners.add(look);
        look();
      });
    }
  }
  return { ai, Chat };
}

// What a page leaves out, as docs/frontends.md has it.
export function standing(message) {
  const gone = new Set(message.parts.filter((part) => part.type === 'data-withdrawn').flatMap(({ data }) => [...data.parts, ...data.tools]));
  return message.parts.filter(
    (part) => ![part.id, part.providerMetadata?.runjournal?.part, part.toolCallId, part.sourceId].some((id) => gone.has(id)),
  );
}

export const textOf = (message) => (message?.parts ?? []).filter((part) => part.type === 'text').map((part) => part.text).join('');

export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}

export const same = (one, other, what) =>
  check(JSON.stringify(one) === JSON.stringify(other), `${what}\n  ${JSON.stringify(one)}\n  ${JSON.stringify(other)}`);
