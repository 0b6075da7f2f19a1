// `useStream` of @langchain/react (the newer protocol) against a real server: node react.mjs URL [JOURNEY]
import { randomUUID } from 'node:crypto';
import { useStream } from '@langchain/react';
import { check, cuttable, leave, open, report, said, same, show, shown, state, until } from './page.mjs';

const [, , url, only] = process.argv;
const human = (text) => ({ messages: [{ type: 'human', content: text }] });

async function page(threadId = randomUUID(), options = {}) {
  const into = await show(useStream, { apiUrl: `${url}/langgraph`, assistantId: 'agent', threadId, ...options });
  // The pages of this process share one module, which asks for a state once for all that want it at the same time.
  await until(into, (stream) => !stream.isThreadLoading, 'the thread is loaded');
  return { into, id: threadId };
}

const submit = ({ into }, text, options) => { into.stream.submit(human(text), options); };
const last = (stream) => shown(stream).at(-1);
// A question comes on two connections, and the client takes a copy that comes behind its answer for a new question. A person
// reads a question before the answer.
const read = () => new Promise((resolve) => setTimeout(resolve, 500));

async function held(what, options) {
  const one = await page(undefined, options);
  submit(one, `${what}:${one.id}`);
  return one;
}

// What the page shows is what the thread has.
async function agrees(one) {
  same(shown(one.into.stream).filter((line) => !line.endsWith(': ')), (await said(url, one.id)).filter((line) => !line.endsWith(': ')), 'page and thread');
}

await report({
  async 'send, and a second message'() {
    const one = await page();
    submit(one, 'plain');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'the answer');
    submit(one, 'echo');
    await until(one.into, (stream) => !stream.isLoading && last(stream)?.startsWith('ai: human: plain'), 'the second answer');
    same(shown(one.into.stream).length, 4, 'four messages');
    await agrees(one);
  },
  async 'words come one by one'() {
    const one = await held('hold text');
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    check(one.into.stream.isLoading, 'it is loading');
    await open(url, one.id);
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: First half, second half.', 'all of it');
    await agrees(one);
  },
  async 'tools'() {
    const one = await page();
    submit(one, 'tools');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: That is what the tool said.', 'the answer');
    same(one.into.stream.toolCalls.map((call) => [call.name, call.input?.city ?? call.args?.city]).sort(), [['weather', 'Oslo'], ['weather', 'Rome']], 'the calls');
    await agrees(one);
  },
  async 'stop, and the answer stays'() {
    const one = await held('hold text');
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    await one.into.stream.stop();
    await until(one.into, (stream) => !stream.isLoading, 'stopped');
    for (let tries = 0; (await state(url, one.id)).next.length || (await said(url, one.id)).length < 2; tries++) check(tries < 200, 'the thread is settled');
    same(await said(url, one.id), [`human: hold text:${one.id}`, 'ai: First half, '], 'the thread has the words');
    submit(one, 'plain');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'the next answer');
    same(shown(one.into.stream).map((line) => line.slice(0, 14)), ['human: hold te', 'ai: First half', 'human: plain', 'ai: Hello ther'], 'in order');
    await agrees(one);
  },
  async 'reload in mid-stream'() {
    const one = await held('hold text');
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    await leave();
    const again = await page(one.id);
    await until(again.into, (stream) => last(stream) === 'ai: First half, ', 'the first half again');
    await open(url, one.id);
    await until(again.into, (stream) => !stream.isLoading && last(stream) === 'ai: First half, second half.', 'all of it');
    same(shown(again.into.stream).length, 2, 'two messages');
  },
  async 'reload after the end'() {
    const one = await page();
    submit(one, 'tools');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: That is what the tool said.', 'the answer');
    const before = shown(one.into.stream);
    await leave();
    const again = await page(one.id);
    await until(again.into, (stream) => shown(stream).length === before.length, 'the thread');
    same(shown(again.into.stream), before, 'the same page');
    submit(again, 'plain');
    await until(again.into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'it goes on');
    same(shown(again.into.stream).slice(0, before.length), before, 'nothing has moved');
  },
  async 'two tabs'() {
    const one = await held('hold text');
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    const tab = await page(one.id);
    await until(tab.into, (stream) => last(stream) === 'ai: First half, ', 'the first half in the other tab');
    await open(url, one.id);
    for (const each of [one, tab]) await until(each.into, (stream) => !stream.isLoading && last(stream) === 'ai: First half, second half.', 'all of it');
  },
  async 'a question and its answer'() {
    const one = await page();
    submit(one, 'ask');
    await until(one.into, (stream) => stream.interrupt !== undefined, 'the question');
    same(one.into.stream.interrupt.value, { question: 'May I?' }, 'its words');
    await read();
    await one.into.stream.respond('yes');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: That is what the tool said.', 'the answer');
    await until(one.into, (stream) => stream.interrupts.length === 0, 'no question is left');
    await agrees(one);
  },
  async 'a question after a reload'() {
    const one = await page();
    submit(one, 'ask');
    await until(one.into, (stream) => stream.interrupt !== undefined, 'the question');
    await leave();
    const again = await page(one.id);
    await until(again.into, (stream) => stream.interrupt !== undefined, 'the question again');
    await until(again.into, (stream) => stream.getThread()?.interrupts.length === 1, 'the stream has it');
    await read();
    await again.into.stream.respond('no');
    await until(again.into, (stream) => !stream.isLoading && last(stream) === 'ai: That is what the tool said.', 'the answer');
    check(shown(again.into.stream).includes('tool: the human says no'), 'what the human said');
  },
  async 'an error of the graph'() {
    const one = await page();
    submit(one, 'fail');
    await until(one.into, (stream) => !stream.isLoading && stream.error !== undefined, 'the error');
    check((await said(url, one.id)).at(-1).startsWith('ai: Well, '), 'the thread keeps the words');
    submit(one, 'plain');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'it goes on');
  },
  async 'the network drops'() {
    const cuts = cuttable();
    const one = await held('hold text', { fetch: cuts.fetch });
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    check(cuts.size > 0, 'there is a connection to cut');
    cuts.now();
    await open(url, one.id);
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: First half, second half.', 'all of it, once');
    same(shown(one.into.stream).length, 2, 'two messages');
  },
  async 'edit: a run from an earlier checkpoint'() {
    const one = await page();
    submit(one, 'count');
    await until(one.into, (stream) => !stream.isLoading && last(stream)?.startsWith('ai: Answer number'), 'the answer');
    const first = last(one.into.stream);
    const history = await (await fetch(`${url}/langgraph/threads/${one.id}/history`, { method: 'POST', body: '{"limit":20}' })).json();
    const before = history.find((one) => !one.values.messages?.length) ?? history.at(-1);
    submit(one, 'echo', { forkFrom: before.checkpoint.checkpoint_id });
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: human: echo', 'the new branch');
    check(!(await said(url, one.id)).includes(first), 'the old branch is left');
  },
  async 'graphs inside of a graph'() {
    const one = await page(undefined, { assistantId: 'company' });
    submit(one, 'snow rain');
    await until(one.into, (stream) => !stream.isLoading && last(stream)?.startsWith('ai: Signed'), 'the signature');
    check(shown(one.into.stream).includes('ai: Written about snow rain.'), 'what the desk wrote');
    same(one.into.stream.values.notes, ['snow', 'rain'], 'the notes');
  },
}, only);
