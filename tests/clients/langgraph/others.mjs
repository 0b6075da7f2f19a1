// Frontends on top of the SDK against a real server: node others.mjs URL [JOURNEY]. assistant-ui, CopilotKit's agent, and
// the options and submits of agent-chat-ui (fdc87e6) and deep-agents-ui (f6a4f34), whose pages are not run here.
import { LangGraphAgent } from '@ag-ui/langgraph';
import { unstable_createLangGraphStream as createStream, useLangGraphMessages } from '@assistant-ui/react-langgraph';
import { Client } from '@langchain/langgraph-sdk';
import { useStream } from '@langchain/langgraph-sdk/react';
import { check, leave, open, report, said, same, show, shown, until } from './page.mjs';

const [, , url, only] = process.argv;
const apiUrl = `${url}/langgraph`;
const client = new Client({ apiUrl });
const key = () => `other ${Math.random()}`;
const last = (stream) => shown(stream).at(-1);
const settled = async (id, count) => {
  for (let tries = 0; (await said(url, id)).length < count; tries++) check(tries < 300, 'the thread is settled');
  return said(url, id);
};

// --- assistant-ui: mode `messages`, a connection that ends stops the run ------------------------------------------------

async function assistantUi() {
  const id = (await client.threads.create()).thread_id;
  const stream = createStream({ client, assistantId: 'agent' });
  const about = { initialize: async () => ({ remoteId: id, externalId: id }) };
  const into = await show(useLangGraphMessages, { stream: (messages, config) => stream(messages, { ...config, ...about }) });
  return { into, id, send: (text) => into.stream.sendMessage([{ id: crypto.randomUUID(), type: 'human', content: text }], {}) };
}

// --- CopilotKit's agent: modes events, values, updates and messages-tuple -----------------------------------------------

function copilot(threadId = crypto.randomUUID()) {
  const seen = [];
  const agent = new LangGraphAgent({ deploymentUrl: apiUrl, graphId: 'agent', threadId, emitInterruptOutcome: true });
  const subscriber = { onEvent: ({ event }) => { seen.push(event); } };
  const run = (text, options = {}) => {
    if (text) agent.addMessage({ id: crypto.randomUUID(), role: 'user', content: text });
    return agent.runAgent(options, subscriber);
  };
  return { agent, seen, run, id: threadId };
}
const types = (seen) => [...new Set(seen.map((event) => event.type))];
const spoken = (seen) => seen.filter((event) => event.type === 'TEXT_MESSAGE_CONTENT').map((event) => event.delta).join('');

// --- agent-chat-ui and deep-agents-ui -----------------------------------------------------------------------------------

async function chatUi(threadId) {
  const seen = {};
  const into = await show(useStream, {
    apiUrl, assistantId: 'agent', ...(threadId && { threadId }), fetchStateHistory: true,
    onThreadId: (id) => { seen.id = id; }, onCustomEvent: () => {},
  });
  const submit = (text) => into.stream.submit(
    { messages: [{ id: crypto.randomUUID(), type: 'human', content: [{ type: 'text', text }] }], context: undefined },
    { streamMode: ['values'], streamSubgraphs: true, streamResumable: true, optimisticValues: (before) => ({ ...before }) },
  );
  return { into, seen, submit };
}

async function deepAgents(threadId) {
  const seen = {};
  const into = await show(useStream, {
    client, assistantId: 'agent', ...(threadId && { threadId }), reconnectOnMount: true, fetchStateHistory: true,
    onThreadId: (id) => { seen.id = id; }, onFinish: () => { seen.finished = (seen.finished ?? 0) + 1; },
  });
  const submit = (text) => into.stream.submit({ messages: [{ id: crypto.randomUUID(), type: 'human', content: text }] }, { config: { recursion_limit: 100 } });
  return { into, seen, submit };
}

await report({
  async 'assistant-ui: send, and a second message'() {
    const one = await assistantUi();
    await one.send('plain');
    await until(one.into, (stream) => last(stream) === 'ai: Hello there, friend.', 'the answer');
    await one.send('tools');
    await until(one.into, (stream) => last(stream) === 'ai: That is what the tool said.', 'the second answer');
    same(one.into.stream.messages.map((each) => each.id), (await client.threads.getState(one.id)).values.messages.map((each) => each.id), 'the ids of the thread');
  },
  async 'assistant-ui: stop'() {
    const one = await assistantUi();
    const sending = one.send(`hold text:${key()}`);
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    one.into.stream.cancel();
    await sending;
    same((await settled(one.id, 2)).at(-1), 'ai: First half, ', 'the thread keeps the words');
    await one.send('plain');
    await until(one.into, (stream) => last(stream) === 'ai: Hello there, friend.', 'it goes on');
  },
  async 'assistant-ui: a question'() {
    const one = await assistantUi();
    await one.send('ask');
    await until(one.into, (stream) => stream.interrupt !== undefined, 'the question');
    same(one.into.stream.interrupt.value, { question: 'May I?' }, 'its words');
    await one.into.stream.sendMessage([], { command: { resume: 'yes' } });
    await until(one.into, (stream) => last(stream) === 'ai: That is what the tool said.', 'the answer');
  },
  async 'CopilotKit: send, and a second message'() {
    const one = copilot();
    await one.run('plain');
    same(spoken(one.seen), 'Hello there, friend.', 'the words');
    check(types(one.seen).includes('RUN_FINISHED') && !types(one.seen).includes('RUN_ERROR'), types(one.seen).join());
    await one.run('echo');
    same(one.agent.messages.map((each) => each.role), ['user', 'assistant', 'user', 'assistant'], 'the messages');
    same(one.agent.messages.map((each) => each.id), (await client.threads.getState(one.id)).values.messages.map((each) => each.id), 'the ids of the thread');
  },
  async 'CopilotKit: tools'() {
    const one = copilot();
    await one.run('tools');
    const found = types(one.seen);
    for (const type of ['TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_END', 'TEXT_MESSAGE_CONTENT', 'RUN_FINISHED']) check(found.includes(type), `${type} in ${found}`);
    same(one.seen.filter((event) => event.type === 'TOOL_CALL_START').map((event) => event.toolCallName), ['weather', 'weather'], 'the calls');
    const whole = one.seen.filter((event) => event.type === 'MESSAGES_SNAPSHOT').at(-1);
    same(whole.messages.map((each) => each.role), ['user', 'assistant', 'tool', 'tool', 'assistant'], 'the messages');
  },
  async 'CopilotKit: stop'() {
    const one = copilot();
    const gone = one.run(`hold text:${key()}`).catch(() => {});
    for (let tries = 0; spoken(one.seen) !== 'First half, '; tries++) {
      check(tries < 500, 'the first half');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    one.agent.abortRun();
    await gone;
    same((await settled(one.id, 2)).at(-1), 'ai: First half, ', 'the thread keeps the words');
  },
  async 'CopilotKit: a question'() {
    const one = copilot();
    await one.run('ask');
    const finished = one.seen.filter((event) => event.type === 'RUN_FINISHED').at(-1);
    const [asked] = finished.outcome?.interrupts ?? [];
    check(asked?.id, `the question: ${JSON.stringify(finished)}`);
    await one.run(null, { resume: [{ interruptId: asked.id, status: 'resolved', payload: 'yes' }] });
    same((await said(url, one.id)).at(-1), 'ai: That is what the tool said.', 'the answer');
  },
  async 'agent-chat-ui: a conversation, its question, its list'() {
    check((await fetch(`${apiUrl}/info`)).ok, 'the deployment answers');
    const one = await chatUi();
    one.submit('plain');
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: Hello there, friend.', 'the answer');
    one.submit('ask');
    await until(one.into, (stream) => !stream.isLoading && stream.interrupt !== undefined, 'the question');
    one.into.stream.submit({}, { command: { resume: 'yes' } });
    await until(one.into, (stream) => !stream.isLoading && last(stream) === 'ai: That is what the tool said.', 'the second answer');
    const list = await client.threads.search({ metadata: { graph_id: 'agent' }, limit: 100 });
    const mine = list.find((each) => each.thread_id === one.seen.id);
    same(mine.values.messages[0].content, [{ type: 'text', text: 'plain' }], 'the title in the list');
    await leave();
    const again = await chatUi(one.seen.id);
    await until(again.into, (stream) => last(stream) === 'ai: That is what the tool said.', 'a reload shows the thread');
  },
  async 'deep-agents-ui: send, reload, stop'() {
    const one = await deepAgents();
    const gate = key();
    one.submit(`hold text:${gate}`);
    await until(one.into, (stream) => last(stream) === 'ai: First half, ', 'the first half');
    await leave();
    const again = await deepAgents(one.seen.id);
    await until(again.into, (stream) => last(stream) === 'ai: First half, ', 'the first half again');
    await again.into.stream.stop();
    same((await settled(one.seen.id, 2)).at(-1), 'ai: First half, ', 'the thread keeps the words');
    const [found] = await client.threads.search({ limit: 1, sortBy: 'updated_at', sortOrder: 'desc', status: 'idle' });
    same(found.thread_id, one.seen.id, 'the newest in the list');
  },
}, only);
