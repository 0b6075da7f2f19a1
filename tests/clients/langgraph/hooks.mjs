// `useStream` of @langchain/langgraph-sdk 1 and 2 against a real server: node hooks.mjs lg1|lg2 URL [JOURNEY]
import { check, cuttable, leave, open, report, said, same, show, shown, state, until, wordsOf } from './page.mjs';

const [, , version, url, only] = process.argv;
const { useStream } = await import(`${version}/react`);
const { Client } = await import(version);
const apiUrl = `${url}/langgraph`;
const human = (text) => ({ messages: [{ type: 'human', content: text }] });
const client = () => new Client({ apiUrl, callerOptions: { maxRetries: 0 } });

async function page(options = {}) {
  const seen = { runs: [], errors: [], custom: [], finished: 0 };
  const into = await show(useStream, {
    apiUrl,
    assistantId: 'agent',
    messagesKey: 'messages',
    onThreadId: (id) => { seen.id = id; },
    onCreated: (run) => seen.runs.push(run.run_id),
    onError: (error) => seen.errors.push(error),
    onCustomEvent: (event) => seen.custom.push(event),
    onFinish: () => { seen.finished += 1; },
    fetchStateHistory: true,
    ...options,
  });
  return { into, seen };
}

const submit = ({ into }, text, options) => { into.stream.submit(typeof text === 'string' ? human(text) : text, options); };
const last = (stream) => shown(stream).at(-1);
const ends = (one, text) => until(one.into, (stream) => !stream.isLoading && last(stream) === text, text);
const key = () => `${version} ${Math.random()}`;

async function held(options, submitting) {
  const one = { ...(await page(options)), gate: key() };
  submit(one, `hold text:${one.gate}`, submitting);
  await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
  return one;
}

async function agrees(one) {
  const empty = (line) => !line.endsWith(': ');
  const thread = (await state(url, one.seen.id)).values.messages;
  same(one.into.stream.messages.map((each) => each.id), thread.map((each) => each.id), 'ids of the page and of the thread');
  same(one.into.stream.messages.map((each) => wordsOf(each.content)).filter(empty), thread.map((each) => wordsOf(each.content)).filter(empty), 'words');
}

await report({
  async 'send, and a second message'() {
    const one = await page();
    submit(one, 'plain');
    await ends(one, 'ai: Hello there, friend.');
    submit(one, 'echo');
    await ends(one, 'ai: human: plain | ai: Hello there, friend. | human: echo');
    await agrees(one);
    same([one.seen.errors.length, one.seen.runs.length, one.seen.finished], [0, 2, 2], 'two runs, no error');
  },
  async 'words come one by one, under the id that stays'() {
    const one = await held();
    const { id } = one.into.stream.messages.at(-1);
    await open(url, one.gate);
    await ends(one, 'ai: First half, second half.');
    same(one.into.stream.messages.at(-1).id, id, 'the id');
    await agrees(one);
  },
  async 'tools'() {
    const one = await page();
    submit(one, 'tools');
    await ends(one, 'ai: That is what the tool said.');
    same(one.into.stream.messages.map((each) => each.type), ['human', 'ai', 'tool', 'tool', 'ai'], 'all messages');
    await agrees(one);
  },
  async 'custom events'() {
    const one = await page();
    submit(one, 'progress');
    await ends(one, 'ai: That is what the tool said.');
    same(one.seen.custom, [{ type: 'progress', id: 'p', done: 0.5 }, 'half', { type: 'progress', id: 'p', done: 1 }], 'the reports');
  },
  async 'stop by closing the connection'() {
    const one = await held();
    await one.into.stream.stop();
    for (let tries = 0; (await said(url, one.seen.id)).length < 2; tries++) check(tries < 300, 'the run is stopped, and its words are kept');
    same((await said(url, one.seen.id)).at(-1), 'ai: First half, ', 'the words');
    submit(one, 'plain');
    await ends(one, 'ai: Hello there, friend.');
    same(shown(one.into.stream).map((line) => line.slice(0, 13)), ['human: hold t', 'ai: First hal', 'human: plain', 'ai: Hello the'], 'in order');
  },
  async 'stop of a run that can be joined again'() {
    const one = await held({ reconnectOnMount: true });
    await one.into.stream.stop();
    for (let tries = 0; (await said(url, one.seen.id)).length < 2; tries++) check(tries < 300, 'the run is stopped, and its words are kept');
    const run = await client().runs.get(one.seen.id, one.seen.runs[0]);
    same(run.status, 'interrupted', 'the status');
    submit(one, 'plain');
    await ends(one, 'ai: Hello there, friend.');
    same(shown(one.into.stream).length, 4, 'four messages');
  },
  async 'stop by the client'() {
    const one = await held({ reconnectOnMount: true });
    await client().runs.cancel(one.seen.id, one.seen.runs[0], true);
    await until(one.into, (stream) => !stream.isLoading, 'the stream ends');
    same(last(one.into.stream), 'ai: First half, ', 'the words stay on the page');
    await agrees(one);
  },
  async 'reload in mid-stream'() {
    const one = await held({ reconnectOnMount: true });
    await leave();
    const again = await page({ reconnectOnMount: true, threadId: one.seen.id });
    await until(again.into, (stream) => last(stream) === 'ai: First half, ', 'the first half again');
    await open(url, one.gate);
    await ends(again, 'ai: First half, second half.');
    same(shown(again.into.stream).length, 2, 'two messages');
  },
  async 'reload after the end'() {
    const one = await page({ reconnectOnMount: true });
    submit(one, 'tools');
    await ends(one, 'ai: That is what the tool said.');
    const before = shown(one.into.stream);
    await leave();
    const again = await page({ reconnectOnMount: true, threadId: one.seen.id });
    await until(again.into, (stream) => shown(stream).length === before.length, 'the thread');
    same(shown(again.into.stream), before, 'the same page');
  },
  async 'another tab joins the run'() {
    const one = await held({ reconnectOnMount: true });
    const tab = await page({ threadId: one.seen.id });
    await until(tab.into, (stream) => shown(stream).length === 1, 'the thread so far');
    tab.into.stream.joinStream(one.seen.runs[0]);
    await until(tab.into, (stream) => last(stream) === 'ai: First half, ', 'the first half in the other tab');
    await open(url, one.gate);
    for (const each of [one, tab]) await ends(each, 'ai: First half, second half.');
  },
  async 'the network drops'() {
    const cuts = cuttable();
    const one = await held({ callerOptions: { fetch: cuts.fetch } }, { streamResumable: true });
    check(cuts.size > 0, 'there is a connection to cut');
    cuts.now();
    await open(url, one.gate);
    await ends(one, 'ai: First half, second half.');
    same([shown(one.into.stream).length, one.seen.errors.length], [2, 0], 'once, and no error');
  },
  async 'a question and its answer'() {
    const one = await page();
    submit(one, 'ask');
    await until(one.into, (stream) => !stream.isLoading && stream.interrupt !== undefined, 'the question');
    same(one.into.stream.interrupt.value, { question: 'May I?' }, 'its words');
    one.into.stream.submit(undefined, { command: { resume: 'yes' } });
    await ends(one, 'ai: That is what the tool said.');
    check(shown(one.into.stream).includes('tool: the human says yes'), 'what the human said');
    same(one.into.stream.interrupt, undefined, 'no question is left');
  },
  async 'a question after a reload'() {
    const one = await page();
    submit(one, 'ask');
    await until(one.into, (stream) => !stream.isLoading && stream.interrupt !== undefined, 'the question');
    await leave();
    const again = await page({ threadId: one.seen.id });
    await until(again.into, (stream) => stream.interrupt !== undefined, 'the question again');
    again.into.stream.submit(undefined, { command: { resume: 'no' } });
    await ends(again, 'ai: That is what the tool said.');
    check(shown(again.into.stream).includes('tool: the human says no'), 'what the human said');
  },
  async 'edit and regenerate'() {
    const one = await page();
    submit(one, 'count');
    await until(one.into, (stream) => !stream.isLoading && last(stream)?.startsWith('ai: Answer number') && stream.history.length > 0, 'the answer');
    const first = last(one.into.stream);
    const meta = (at) => one.into.stream.getMessagesMetadata(one.into.stream.messages[at]);
    await until(one.into, () => meta(1)?.firstSeenState?.parent_checkpoint, 'where the answer came from');
    one.into.stream.submit(undefined, { checkpoint: meta(1).firstSeenState.parent_checkpoint });
    await until(one.into, (stream) => !stream.isLoading && last(stream)?.startsWith('ai: Answer number') && last(stream) !== first, 'another answer');
    same(shown(one.into.stream).length, 2, 'in place of the first');
    await until(one.into, () => meta(1)?.branchOptions?.length === 2, 'two branches');
    one.into.stream.submit(human('echo'), { checkpoint: meta(0).firstSeenState.parent_checkpoint });
    await ends(one, 'ai: human: echo');
    same(shown(one.into.stream).length, 2, 'in place of all');
  },
  async 'optimistic values'() {
    const one = await page();
    const message = { id: crypto.randomUUID(), type: 'human', content: 'plain' };
    one.into.stream.submit({ messages: [message] }, { optimisticValues: (before) => ({ ...before, messages: [...(before?.messages ?? []), message] }) });
    await until(one.into, (stream) => shown(stream)[0] === 'human: plain', 'at once');
    await ends(one, 'ai: Hello there, friend.');
    same(one.into.stream.messages.map((each) => each.type), ['human', 'ai'], 'once');
  },
  async 'an error of the graph'() {
    const one = await page();
    submit(one, 'fail');
    await until(one.into, (stream) => !stream.isLoading && stream.error !== undefined, 'the error');
    same((await said(url, one.seen.id)).at(-1), 'ai: Well, ', 'the thread keeps the words');
    submit(one, 'plain');
    await ends(one, 'ai: Hello there, friend.');
  },
  async 'graphs inside of a graph'() {
    const one = await page({ assistantId: 'company' });
    submit(one, 'snow rain', { streamSubgraphs: true });
    await ends(one, 'ai: Signed: snow and rain');
    same(shown(one.into.stream), ['human: snow rain', 'ai: Written about snow rain.', 'ai: Signed: snow and rain'], 'all messages');
    same(one.into.stream.values.notes, ['snow', 'rain'], 'the notes');
    await agrees(one);
  },
  async 'reload, and the run is unknown'() {
    const one = await page();
    submit(one, 'plain');
    await ends(one, 'ai: Hello there, friend.');
    await leave();
    sessionStorage.setItem(`lg:stream:${one.seen.id}`, crypto.randomUUID());
    const again = await page({ reconnectOnMount: true, threadId: one.seen.id });
    await until(again.into, (stream) => !stream.isLoading && stream.error !== undefined, 'the error');
    await until(again.into, (stream) => shown(stream).length === 2, 'the thread is shown');
    submit(again, 'plain');
    await ends(again, 'ai: Hello there, friend.');
  },
}, only);
