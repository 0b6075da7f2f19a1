// A page of jsdom for the hooks of LangGraph's clients, and what all journeys of a page use.
import { JSDOM } from 'jsdom';

const dom = new JSDOM('<!doctype html><body></body>', { url: 'http://localhost/' });
const globals = { window: dom.window, sessionStorage: dom.window.sessionStorage };
for (const name of ['document', 'navigator', 'HTMLElement', 'Node', 'MutationObserver', 'localStorage']) globals[name] = dom.window[name];
for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, { value, configurable: true });

const { createElement, useEffect } = await import('react');
const { createRoot } = await import('react-dom/client');
const roots = new Set();

// Close all pages, as a reload does.
export async function leave() {
  for (const root of roots) root.unmount();
  roots.clear();
  await new Promise((resolve) => setTimeout(resolve, 0)); // their effects are undone
}

export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}

export const same = (one, other, what) =>
  check(JSON.stringify(one) === JSON.stringify(other), `${what}\n  ${JSON.stringify(one)}\n  ${JSON.stringify(other)}`);

export const wordsOf = (content) =>
  typeof content === 'string' ? content : (content ?? []).map((block) => block.text ?? '').join('');

// The messages that a hook shows: type and words. A tool request without words shows the names of its tools.
export const shown = (stream) =>
  stream.messages.map((one) => [one.type ?? one.getType?.(), wordsOf(one.content) || (one.tool_calls ?? []).map((call) => call.name).join()].join(': '));

export const open = async (url, key) => {
  const response = await fetch(`${url}/gates/${encodeURIComponent(key)}`, { method: 'POST' });
  check(response.ok, 'the gate is open');
};

export const state = async (url, thread) => (await fetch(`${url}/langgraph/threads/${thread}/state`)).json();
export const said = async (url, thread) => (await state(url, thread)).values.messages.map((one) => `${one.type}: ${wordsOf(one.content)}`);

// Show a component that calls a hook. `into.stream` is what the hook has returned last.
export async function show(useHook, options) {
  const into = {};
  function Page() {
    into.stream = useHook(options);
    into.look?.();
    useEffect(() => { into.isMounted = true; into.look?.(); }, []);
    return null;
  }
  const root = createRoot(dom.window.document.body.appendChild(dom.window.document.createElement('div')));
  roots.add(root);
  root.render(createElement(Page));
  await until(into, () => into.isMounted, 'the page is there');
  await new Promise((resolve) => setTimeout(resolve, 0)); // the effects of the hook have run
  return into;
}

// Resolves when `is` holds, which is looked at after each change of the page.
export async function until(into, is, what, patience = 15000) {
  let give;
  await new Promise((resolve, reject) => {
    into.look = () => { if (is(into.stream)) resolve(); };
    const tell = () => new Error(`never: ${what}: ${JSON.stringify(shown(into.stream ?? { messages: [] }))} ${into.stream?.isLoading} ${into.stream?.error}`);
    give = setTimeout(() => reject(tell()), patience);
    into.look();
  }).finally(() => { clearTimeout(give); into.look = undefined; });
}

// `fetch` through which a journey can cut all connections that are open: `cuts.now()`.
export function cuttable() {
  const cuts = new Set();
  const wrapped = async (input, init) => {
    const response = await fetch(input, init);
    if (!response.body || !response.headers.get('content-type')?.startsWith('text/event-stream')) return response;
    const reader = response.body.getReader();
    let cut;
    const body = new ReadableStream({
      start(controller) {
        cut = () => { cuts.delete(cut); controller.error(new TypeError('terminated')); reader.cancel().catch(() => {}); };
        cuts.add(cut);
      },
      async pull(controller) {
        const { done, value } = await reader.read().catch(() => ({ done: true }));
        try {
          if (done) { cuts.delete(cut); controller.close(); } else controller.enqueue(value);
        } catch {} // it was cut
      },
      cancel(reason) { cuts.delete(cut); return reader.cancel(reason); },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  return { fetch: wrapped, now: () => [...cuts].forEach((cut) => cut()), get size() { return cuts.size; } };
}

// Run journeys one by one, and print {journey: null or what went wrong}.
export async function report(journeys, only) {
  const found = {};
  for (const [name, journey] of Object.entries(journeys)) {
    if (only && !name.includes(only)) continue;
    found[name] = await journey().then(() => null, (error) => String(error.stack ?? error).slice(0, 4000));
    await leave();
    sessionStorage.clear();
  }
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
}
