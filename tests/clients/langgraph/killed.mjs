// Pages of a worker that is killed go on with another one: node killed.mjs URL OTHER
// Out: the line "held" when all have words, and in the end {client: null or what went wrong}.
import { Client } from '@langchain/langgraph-sdk';
import { useStream as useNewer } from '@langchain/react';
import { useStream as use1 } from 'lg1/react';
import { useStream as use2 } from 'lg2/react';
import { check, leave, said, same, show, shown, until } from './page.mjs';

const [, , url, other] = process.argv;
const hooks = { lg1: use1, lg2: use2, react: useNewer };
const human = (text) => ({ messages: [{ type: 'human', content: text }] });
const last = (stream) => shown(stream).at(-1);
const open = async (name, at, threadId) => {
  const options = { apiUrl: `${at}/langgraph`, assistantId: 'agent', threadId };
  const old = name === 'react' ? {} : { fetchStateHistory: true, reconnectOnMount: true };
  const into = await show(hooks[name], { ...options, ...old });
  await until(into, (stream) => !stream.isThreadLoading, 'the thread is loaded');
  return into;
};

async function begin(name) {
  const id = (await new Client({ apiUrl: `${url}/langgraph` }).threads.create()).thread_id;
  const into = await open(name, url, id);
  into.stream.submit(human('hold text:never'), { streamResumable: true });
  await until(into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
  return { name, id };
}

const back = new Client({ apiUrl: `${other}/langgraph`, callerOptions: { maxRetries: 8 } });

async function finish({ name, id }) {
  for (let tries = 0; (await said(other, id).catch(() => [])).length < 2; tries++) {
    check(tries < 300, 'the other worker settles the thread');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const into = await open(name, other, id);
  await until(into, (stream) => last(stream) === 'ai: First half, ', 'the words are there');
  same(shown(into.stream).length, 2, 'two messages');
  into.stream.submit(human('plain'));
  await until(into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'it goes on');
}

const pages = [];
for (const name of Object.keys(hooks)) pages.push(await begin(name));
const queued = (await new Client({ apiUrl: `${url}/langgraph` }).runs.create(pages[0].id, 'agent', { input: human('echo') })).run_id;
console.log('held');
for await (const line of process.stdin) if (String(line).includes('killed')) break;
await leave();
const report = {};
report.queued = await back.runs.join(pages[0].id, queued).then(
  (values) => same(values.messages.at(-1).content, 'human: hold text:never | ai: First half,  | human: echo', 'what was in line has run') ?? null,
  (error) => String(error.stack ?? error),
);
const [first, ...rest] = pages;
report.thread = await said(other, first.id).then((lines) => (lines.length === 4 ? null : lines.join()));
for (const page of rest) {
  report[page.name] = await finish(page).then(() => null, (error) => String(error.stack ?? error));
  await leave();
}
process.stdout.write(JSON.stringify(report), () => process.exit(0));
