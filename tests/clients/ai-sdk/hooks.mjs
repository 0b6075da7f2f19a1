// `useChat` in a page of jsdom against a real server: node hooks.mjs VERSION URL. Out: {journey: null or what went wrong}.
import { JSDOM } from 'jsdom';
import { check, same, standing, textOf } from './chat.mjs';

const [, , version, url] = process.argv;
const dom = new JSDOM('<!doctype html><body></body>', { url: 'http://localhost/' });
const globals = { window: dom.window };
for (const name of ['document', 'navigator', 'HTMLElement', 'Node', 'MutationObserver']) globals[name] = dom.window[name];
for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, { value, configurable: true });
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const { createElement } = await import('react');
const { render, screen, act, waitFor, cleanup } = await import('@testing-library/react');
const { DefaultChatTransport } = await import(version);
const { useChat } = await import(`react-${version}`);

const stored = async (id) => (await fetch(`${url}/agent/ai-sdk/chat/${encodeURIComponent(id)}/messages`)).json();
const open = async (key) => fetch(`${url}/gates/${encodeURIComponent(key)}`, { method: 'POST' });

// The page of docs/frontends.md.
function Page({ id, messages: initial, resume, into }) {
  const chat = useChat({ id, messages: initial, resume, transport: new DefaultChatTransport({ api: `${url}/agent/ai-sdk/chat` }) });
  into.chat = chat;
  return createElement('ul', null, chat.messages.map((message) =>
    createElement('li', { key: message.id, 'data-role': message.role },
      standing(message).map((part, at) => createElement('span', { key: at, 'data-part': part.type }, part.text ?? JSON.stringify(part.data ?? part.output)))),
  ));
}

async function show(id, resume) {
  const into = {};
  const messages = await stored(id);
  await act(async () => { render(createElement(Page, { id, messages, resume, into })); });
  return into;
}

const bubbles = () => [...dom.window.document.querySelectorAll('li')].map((one) => one.textContent);
const until = (is, what) => waitFor(() => check(is(), `${what}: ${JSON.stringify(bubbles())}`), { timeout: 10000 });

async function run(name, text) {
  const id = `${version} hook ${name}`;
  const into = await show(id, false);
  let sending;
  await act(async () => { sending = into.chat.sendMessage({ text: text.replace('$', id) }); });
  return { id, into, sending };
}

const journeys = {
  async 'send, stream and reload'() {
    const { id, into, sending } = await run('plain', 'tools');
    await act(async () => sending);
    await until(() => into.chat.status === 'ready' && bubbles()[1].includes('That is what'), 'the answer');
    const before = bubbles();
    cleanup();
    const again = await show(id, true);
    await until(() => again.chat.status === 'ready', 'nothing to resume');
    same(bubbles(), before, 'the same page');
  },
  async 'reload in the middle'() {
    const { id, sending } = await run('held', 'hold text:$');
    await until(() => bubbles()[1]?.startsWith('First'), 'the first half');
    cleanup();
    const again = await show(id, true);
    await until(() => bubbles()[1]?.startsWith('First'), 'the first half again');
    await act(async () => { await open(id); });
    await until(() => again.chat.status === 'ready' && bubbles()[1] === 'First half, second half.', 'all of it');
    same(bubbles().length, 2, 'two bubbles');
    await act(async () => sending);
  },
  async 'stop'() {
    const { id, into, sending } = await run('stop', 'hold text:$');
    await until(() => bubbles()[1]?.startsWith('First'), 'the first half');
    await act(async () => { await fetch(`${url}/agent/ai-sdk/chat/${encodeURIComponent(id)}/stop`, { method: 'POST' }); });
    await act(async () => sending);
    await until(() => into.chat.status === 'ready' && bubbles()[1].includes('{"cause":"stop"}'), 'cut off');
  },
  async 'regenerate and edit'() {
    const { into, sending } = await run('again', 'count');
    await act(async () => sending);
    await until(() => into.chat.status === 'ready' && bubbles().length === 2, 'the answer');
    const first = bubbles()[1];
    await act(async () => into.chat.regenerate());
    await until(() => into.chat.status === 'ready' && bubbles().length === 2 && bubbles()[1] !== first, 'another answer');
    await act(async () => into.chat.sendMessage({ text: 'echo', messageId: into.chat.messages[0].id }));
    await until(() => into.chat.status === 'ready' && bubbles()[1] === 'human: echo', 'the edit');
  },
};

const report = {};
for (const [name, journey] of Object.entries(journeys)) {
  report[name] = await journey().then(() => null, (error) => String(error.stack ?? error).slice(0, 4000));
  cleanup();
}
process.stdout.write(JSON.stringify(report), () => process.exit(0));
