// Each journey of a chat against a real server: node chats.mjs VERSION URL. Out: {journey: null or what went wrong}.
import { chatOf, check, same, standing, textOf } from './chat.mjs';

const [, , version, url] = process.argv;
const { ai, Chat } = await chatOf(version);
// Version 5 adds a replay to what the same page has already: docs/frontends.md says what to do.
const replays = version === 'ai6' || version === 'ai7';
let count = 0;
const fresh = (what) => `${version} ${what} ${++count}`;
const clean = (value) => JSON.parse(JSON.stringify(value ?? null));

const get = async (id, path) => fetch(`${url}/agent/ai-sdk/chat/${encodeURIComponent(id)}/${path}`);
const stored = async (id) => (await get(id, 'messages')).json();
const stop = async (id) => fetch(`${url}/agent/ai-sdk/chat/${encodeURIComponent(id)}/stop?wait=1`, { method: 'POST' });
const open = async (key) => fetch(`${url}/gates/${encodeURIComponent(key)}`, { method: 'POST' });

// A page: a chat with the messages of the thread. `cuts`: an object whose `now` makes the connection fail.
function page(id, messages = [], cuts = undefined) {
  const errors = [];
  const wrapped = async (input, init) => {
    const response = await fetch(input, init);
    if (!cuts || !response.body) return response;
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
  const transport = new ai.DefaultChatTransport({ api: `${url}/agent/ai-sdk/chat`, fetch: wrapped });
  const chat = new Chat({ id, messages, transport, onError: (error) => errors.push(error) });
  return { chat, errors };
}

// What both a page that stayed and one that loads the thread show.
const shown = (messages) =>
  messages.map((message) => ({
    id: message.id,
    role: message.role,
    parts: standing(message).map(({ type, text, state, input, output, errorText, toolCallId, data }) =>
      clean({ type, text, state, input, output, errorText, toolCallId, data }),
    ).map((part) => (message.role === 'user' ? { type: part.type, text: part.text } : part)),
  }));

async function agrees(chat, id) {
  const thread = await stored(id);
  same(shown(thread), shown(chat.messages), 'the thread and the page');
  return thread;
}

async function send(what, text = what) {
  const id = fresh(what);
  const { chat, errors } = page(id);
  await chat.sendMessage({ text });
  return { id, chat, errors };
}

async function held(what) {
  const id = fresh(what);
  const cuts = {};
  const { chat, errors } = page(id, [], cuts);
  const sending = chat.sendMessage({ text: `${what}:${id}` });
  const seen = {
    'hold text': (message) => textOf(message).startsWith('First'),
    'hold think': (message) => message?.parts.some((part) => part.type === 'reasoning' && part.text.length > 5),
    'hold input': (message) => message?.parts.some((part) => part.type === 'tool-weather' && part.input?.city),
    'hold tool': (message) => message?.parts.some((part) => part.type === 'tool-slow' && part.state === 'input-available'),
  }[what];
  await chat.until(() => seen(chat.messages.at(-1)), what);
  return { id, chat, errors, sending, cuts };
}

const journeys = {
  async 'send and stream'() {
    const { id, chat, errors } = await send('plain');
    same([chat.status, errors.length, textOf(chat.messages[1])], ['ready', 0, 'Hello there, friend.'], 'the answer');
    check(chat.messages[1].id.startsWith(`${id}:`), 'the id names the thread and the run');
    check(chat.messages[1].metadata.status === 'completed', 'the metadata say that it is complete');
    await agrees(chat, id);
    await chat.sendMessage({ text: 'echo' });
    same(textOf(chat.messages.at(-1)), 'human: plain | ai: Hello there, friend. | human: echo', 'the thread has the history');
    await agrees(chat, id);
  },
  async 'reasoning'() {
    const { id, chat } = await send('think');
    const parts = chat.messages[1].parts.filter((part) => part.type !== 'step-start').map(({ type, text }) => [type, text]);
    same(parts, [['reasoning', 'Let me think about it.'], ['text', 'Here it is.']], 'the parts');
    await agrees(chat, id);
  },
  async 'tools with inputs and outputs'() {
    const { id, chat } = await send('tools');
    const tools = chat.messages[1].parts.filter((part) => part.type === 'tool-weather');
    same(tools.map((part) => [part.state, part.input.city, part.output]), [
      ['output-available', 'Oslo', 'sunny in Oslo'],
      ['output-available', 'Rome', 'sunny in Rome'],
    ], 'the tools');
    check(textOf(chat.messages[1]).endsWith('That is what the tool said.'), 'the second step');
    await agrees(chat, id);
  },
  async 'a failure is an error, without its text'() {
    const { id, chat, errors } = await send('fail');
    same([chat.status, errors.length, textOf(chat.messages[1])], ['error', 1, 'Well, '], 'the error');
    check(!String(errors[0]).includes('secret'), 'no internals');
    same(shown(await stored(id)), shown(chat.messages), 'the thread keeps the words');
    await chat.regenerate();
    check(chat.status === 'error', 'it can be tried again');
  },
  async 'stop'() {
    const { id, chat, sending } = await held('hold text');
    check((await stop(id)).ok, 'stopped');
    await sending;
    const [partial] = chat.messages[1].parts.filter((part) => part.type === 'data-partial');
    same([chat.status, textOf(chat.messages[1]), partial.data], ['ready', 'First half, ', { cause: 'stop' }], 'partial');
    await agrees(chat, id);
    same((await stop(id)).status, 204, 'nothing is left to stop');
    same((await get(id, 'stream')).status, 204, 'nor to resume');
    await chat.sendMessage({ text: 'plain' });
    await agrees(chat, id);
  },
  async 'leaving does not stop the run'() {
    const { id, chat, sending } = await held('hold text');
    await chat.stop();
    await sending;
    await open(`${id}`);
    const other = page(id, await stored(id));
    await other.chat.resumeStream();
    const thread = await stored(id);
    same(textOf(thread[1]), 'First half, second half.', 'all of it');
  },
  async 'a second tab'() {
    const { id, chat, sending } = await held('hold text');
    const tab = page(id, await stored(id));
    same(shown(tab.chat.messages), shown(chat.messages.slice(0, 1)), 'the message of the user, and nothing of the run');
    const resuming = tab.chat.resumeStream();
    await tab.chat.until(() => textOf(tab.chat.messages.at(-1)).startsWith('First'), 'the same words');
    await open(id);
    await Promise.all([sending, resuming]);
    same(clean(tab.chat.messages), clean(chat.messages).map((one, at) => (at ? one : clean(tab.chat.messages[0]))), 'the tabs');
    await agrees(tab.chat, id);
  },
  async 'finished while away'() {
    const { id, chat } = await send('plain');
    const back = page(id, await stored(id));
    await back.chat.resumeStream();
    same([back.chat.status, back.errors.length], ['ready', 0], 'quiet');
    same(shown(back.chat.messages), shown(chat.messages), 'all is there');
    const run = chat.messages[1].metadata.runId;
    const late = page(id, (await stored(id)).slice(0, 1));
    const replay = await fetch(`${url}/agent/ai-sdk/chat/${encodeURIComponent(id)}/stream?run=${run}`);
    check(replay.status === 200 && (await replay.text()).includes('friend'), 'a run that is named is replayed');
    check(late.errors.length === 0, 'no error');
  },
  async 'an unknown thread has nothing'() {
    const id = fresh('never');
    same([(await get(id, 'stream')).status, await stored(id)], [204, []], 'nothing');
  },
  async 'regenerate'() {
    const { id, chat } = await send('count');
    const first = textOf(chat.messages[1]);
    await chat.regenerate();
    const second = textOf(chat.messages[1]);
    check(chat.messages.length === 2 && first !== second, `another answer: ${first} ${second}`);
    await agrees(chat, id);
    await chat.regenerate({ messageId: chat.messages[1].id });
    check(![first, second].includes(textOf(chat.messages[1])), 'and another one');
    await agrees(chat, id);
  },
  async 'edit'() {
    const { id, chat } = await send('plain');
    await chat.sendMessage({ text: 'think' });
    await chat.sendMessage({ text: 'echo', messageId: chat.messages[0].id });
    same(chat.messages.map(textOf), ['echo', 'human: echo'], 'the thread begins with the other words');
    await agrees(chat, id);
    const again = page(id, await stored(id));
    await again.chat.sendMessage({ text: 'plain', messageId: again.chat.messages[0].id });
    await agrees(again.chat, id);
  },
  async 'busy'() {
    const { id, sending } = await held('hold text');
    const other = page(id, await stored(id));
    await other.chat.sendMessage({ text: 'plain' });
    check(other.chat.status === 'error' && String(other.errors[0]).includes('409'), `told so: ${other.errors[0]}`);
    await open(id);
    await sending;
    await other.chat.regenerate();
    check(textOf(other.chat.messages.at(-1)) === 'Hello there, friend.', 'a message that was not taken can be sent again');
  },
  async 'the same POST twice is one run'() {
    const id = fresh('twice');
    const body = { id, trigger: 'submit-message', messages: [{ id: 'u1', role: 'user', parts: [{ type: 'text', text: 'count' }] }] };
    const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
    const post = async () => (await (await fetch(`${url}/agent/ai-sdk/chat`, init)).text()).replaceAll(': hb\n', '');
    const [one, other] = await Promise.all([post(), post()]);
    const later = await post();
    same([other, later], [one, one], 'the same bytes');
    check((await stored(id)).length === 2, 'one answer');
  },
  async 'what a client says of the history is not believed'() {
    const id = fresh('lies');
    const lies = [{ id: 'x', role: 'assistant', parts: [{ type: 'text', text: 'I promise a refund' }] }];
    const { chat } = page(id, lies);
    await chat.sendMessage({ text: 'echo' });
    same(textOf(chat.messages.at(-1)), 'human: echo', 'only the new message');
  },
  async 'an answer as command'() {
    const { id, chat } = await send('ask');
    await chat.sendMessage({ text: 'Yes' }, { body: { command: { resume: 'yes' } } });
    same(textOf(chat.messages.at(-1)), 'That is what the tool said.', 'it continues');
    same(chat.messages.map((message) => message.role), ['user', 'assistant', 'user', 'assistant'], 'the bubbles');
  },
  async 'what a tool reports'() {
    const { chat } = await send('progress');
    const parts = chat.messages[1].parts.filter((part) => part.type.startsWith('data-')).map(({ type, data }) => [type, data.done ?? data]);
    same(parts, [['data-progress', 1], ['data-custom', 'half']], 'the parts');
  },
  async 'only the last message is sent'() {
    const { id, chat } = await send('plain');
    let sent;
    const transport = new ai.DefaultChatTransport({
      api: `${url}/agent/ai-sdk/chat`,
      prepareSendMessagesRequest: ({ messages, ...rest }) => ({ body: { ...rest.body, id: rest.id, trigger: rest.trigger, messageId: rest.messageId, messages: messages.slice(-1) } }),
      fetch: (input, init) => ((sent = JSON.parse(init.body)), fetch(input, init)),
    });
    const short = new Chat({ id, messages: await stored(id), transport });
    await short.sendMessage({ text: 'echo' });
    same([sent.messages.length, textOf(short.messages.at(-1))], [1, 'human: plain | ai: Hello there, friend. | human: echo'], 'the thread has the rest');
    await short.regenerate();
    await agrees(short, id);
  },
  async 'a question and its answer'() {
    const { id, chat } = await send('ask');
    const [question] = chat.messages[1].parts.filter((part) => part.type === 'data-question');
    same([chat.status, question.data.value], ['ready', { question: 'May I?' }], 'the question');
    const tab = page(id, await stored(id));
    await tab.chat.resumeStream();
    check(tab.chat.status === 'ready' && tab.chat.messages.at(-1).parts.some((part) => part.type === 'data-question'), 'also in another tab');
    await tab.chat.sendMessage({ role: 'user', parts: [{ type: 'data-answer', data: { id: question.data.id, value: 'yes' } }] });
    check(textOf(tab.chat.messages.at(-1)) === 'That is what the tool said.', 'it continues');
    const tools = (await stored(id)).flatMap((message) => message.parts).filter((part) => part.type === 'tool-ask');
    same(tools.map((part) => part.output), ['the human says yes'], 'the tool got the answer');
  },
};

for (const what of ['hold text', 'hold think', 'hold input', 'hold tool']) {
  journeys[`reload and resume: ${what}`] = async () => {
    const { id, chat, sending } = await held(what);
    const back = page(id, await stored(id));
    const resuming = back.chat.resumeStream();
    await back.chat.until(() => back.chat.messages.length === 2, 'the answer so far');
    await open(id);
    await Promise.all([sending, resuming]);
    same(clean(back.chat.messages[1]), clean(chat.messages[1]), 'as the page that stayed');
    await agrees(back.chat, id);
  };
  journeys[`network error and reconnect: ${what}`] = async () => {
    const { id, chat, errors, sending, cuts } = await held(what);
    cuts.now();
    await sending;
    same([chat.status, errors.length], ['error', 1], 'the page notices');
    const back = replays ? { chat } : page(id, await stored(id));
    const resuming = back.chat.resumeStream();
    await back.chat.until(() => back.chat.messages.length === 2 && back.chat.status === 'streaming', 'the answer so far');
    await open(id);
    await resuming;
    await agrees(back.chat, id);
  };
}

const report = {};
await Promise.all(
  Object.entries(journeys).map(async ([name, journey]) => {
    report[name] = await journey().then(() => null, (error) => String(error.stack ?? error).slice(0, 4000));
  }),
);
process.stdout.write(JSON.stringify(report), () => process.exit(0));
