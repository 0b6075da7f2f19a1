// `Client` of @langchain/langgraph-sdk 1 and 2 against a real server: node client.mjs lg1|lg2 URL [JOURNEY]
import { check, cuttable, open, report, same, wordsOf } from './page.mjs';

const [, , version, url, only] = process.argv;
const { Client } = await import(version);
const make = (options = {}) => new Client({ apiUrl: `${url}/langgraph`, callerOptions: { maxRetries: 1, ...options } });
const client = make();
const human = (text) => ({ messages: [{ type: 'human', content: text }] });
const key = () => `${version} client ${Math.random()}`;
const words = (values) => values.messages.map((one) => `${one.type}: ${wordsOf(one.content)}`);

async function all(stream) {
  const frames = [];
  for await (const frame of stream) frames.push(frame);
  return frames;
}

// What a reader of chunks shows.
const spoken = (frames) => frames.filter((one) => one.event === 'messages' && one.data[0].type === 'AIMessageChunk').map((one) => one.data[0].content).join('');

// A stream up to its first words. `rest` reads on.
async function begin(thread, gate, options = {}) {
  let run;
  const stream = client.runs.stream(thread, 'agent', {
    input: human(`hold text:${gate}`),
    streamMode: ['values', 'messages-tuple'],
    onRunCreated: (created) => { run = created.run_id; },
    ...options,
  });
  const frames = [];
  for (;;) {
    const { value, done } = await stream.next();
    check(!done, 'words come before the end');
    frames.push(value);
    if (spoken(frames) === 'First half, ') break;
  }
  return { run, frames, stream, rest: async () => { for await (const one of stream) frames.push(one); return frames; } };
}

const thread = async () => (await client.threads.create()).thread_id;

await report({
  async 'stream'() {
    const id = await thread();
    const frames = await all(client.runs.stream(id, 'agent', { input: human('plain'), streamMode: ['values', 'messages-tuple', 'updates', 'custom'] }));
    same(frames[0].event, 'metadata', 'the first frame');
    same(spoken(frames), 'Hello there, friend.', 'the words');
    const values = frames.filter((one) => one.event === 'values').at(-1).data;
    same(words(values), ['human: plain', 'ai: Hello there, friend.'], 'the values');
    same((await client.threads.getState(id)).values, values, 'the state');
    same((await client.threads.get(id)).status, 'idle', 'the status');
  },
  async 'create and join, wait, and a run without a thread'() {
    const id = await thread();
    const run = await client.runs.create(id, 'agent', { input: human('plain') });
    same(words(await client.runs.join(id, run.run_id)), ['human: plain', 'ai: Hello there, friend.'], 'the values');
    same((await client.runs.get(id, run.run_id)).status, 'success', 'the status');
    same(words(await client.runs.wait(id, 'agent', { input: human('echo') })).length, 4, 'four messages');
    same((await client.runs.list(id)).map((one) => one.status), ['success', 'success'], 'two runs');
    same(words(await client.runs.wait(null, 'agent', { input: human('plain') })), ['human: plain', 'ai: Hello there, friend.'], 'without a thread');
    same(spoken(await all(client.runs.stream(null, 'agent', { input: human('plain'), streamMode: ['messages-tuple'] }))), 'Hello there, friend.', 'without a thread');
  },
  async 'cancel, and the words stay'() {
    const id = await thread();
    const one = await begin(id, key());
    await client.runs.cancel(id, one.run, true);
    const frames = await one.rest();
    const values = frames.filter((each) => each.event === 'values').at(-1).data;
    same(words(values).at(-1), 'ai: First half, ', 'the last values');
    same((await client.threads.getState(id)).values, values, 'the state');
    same([(await client.runs.get(id, one.run)).status, (await client.threads.get(id)).status], ['interrupted', 'idle'], 'the statuses');
    const again = await all(client.runs.joinStream(id, one.run, { lastEventId: '-1' }));
    same(again.map((each) => [each.id, each.data]), frames.map((each) => [each.id, each.data]), 'a replay is the same');
  },
  async 'rollback'() {
    const id = await thread();
    await client.runs.wait(id, 'agent', { input: human('plain') });
    const before = await client.threads.getState(id);
    const one = await begin(id, key());
    await client.runs.cancel(id, one.run, true, 'rollback');
    await one.rest();
    same(words((await client.threads.getState(id)).values), words(before.values), 'the state is as before');
    check(await client.runs.get(id, one.run).then(() => false, (error) => error.status === 404), 'the run is gone');
  },
  async 'each strategy for a busy thread'() {
    const id = await thread();
    const gate = key();
    const one = await begin(id, gate);
    const refused = await client.runs.create(id, 'agent', { input: human('plain'), multitaskStrategy: 'reject' }).then(() => null, (error) => error);
    same(refused?.status, 409, 'rejected');
    const queued = await client.runs.create(id, 'agent', { input: human('echo'), multitaskStrategy: 'enqueue' });
    same(queued.status, 'pending', 'in line');
    await open(url, gate);
    await one.rest();
    same(words(await client.runs.join(id, queued.run_id)).at(-1).slice(0, 23), 'ai: human: hold text:lg', 'it came after the first');
    const two = await begin(id, key());
    const three = await client.runs.wait(id, 'agent', { input: human('plain'), multitaskStrategy: 'interrupt' });
    check(words(three).includes('ai: First half, '), 'what was interrupted is kept');
    await two.rest();
    same((await client.runs.get(id, two.run)).status, 'interrupted', 'the status');
    const four = await begin(id, key());
    const five = await client.runs.wait(id, 'agent', { input: human('plain'), multitaskStrategy: 'rollback' });
    same(words(five).filter((line) => line === 'ai: First half, ').length, 1, 'what was rolled back is gone');
    await four.rest();
  },
  async 'the network drops'() {
    const id = await thread();
    const gate = key();
    const cuts = cuttable();
    let run;
    const stream = make({ fetch: cuts.fetch, maxRetries: 4 }).runs.stream(id, 'agent', {
      input: human(`hold text:${gate}`), streamMode: ['messages-tuple'], streamResumable: true, onRunCreated: (created) => { run = created.run_id; },
    });
    const frames = [];
    while (spoken(frames) !== 'First half, ') frames.push((await stream.next()).value);
    cuts.now();
    await open(url, gate);
    for await (const one of stream) frames.push(one);
    same(spoken(frames), 'First half, second half.', 'once');
    const ids = frames.filter((one) => one.event === 'messages').map((one) => one.id);
    same(new Set(ids).size, ids.length, 'no frame twice');
    check(run, 'the run has an id');
  },
  async 'a second reader, and one that comes back'() {
    const id = await thread();
    const gate = key();
    const one = await begin(id, gate);
    const joined = all(client.runs.joinStream(id, one.run, { lastEventId: '-1' }));
    const later = all(client.runs.joinStream(id, one.run, { lastEventId: one.frames.at(-1).id }));
    await open(url, gate);
    const frames = await one.rest();
    same(spoken(await joined), 'First half, second half.', 'from the start');
    same((await later).map((each) => each.id), frames.slice(frames.findIndex((each) => each.data?.[0]?.content === 'second ')).map((each) => each.id), 'from there on');
  },
  async 'a question, branches, states and history'() {
    const id = await thread();
    const asked = await client.runs.wait(id, 'agent', { input: human('ask') });
    same(asked.__interrupt__[0].value, { question: 'May I?' }, 'the question');
    same((await client.threads.get(id)).status, 'interrupted', 'the status');
    const done = await client.runs.wait(id, 'agent', { command: { resume: 'yes' } });
    check(words(done).includes('tool: the human says yes'), 'the answer');
    const history = await client.threads.getHistory(id, { limit: 50 });
    same(history.map((one) => one.parent_checkpoint?.checkpoint_id ?? null).slice(0, -1), history.slice(1).map((one) => one.checkpoint.checkpoint_id), 'one chain');
    const first = history.at(-1).checkpoint;
    const other = await client.runs.wait(id, 'agent', { input: human('plain'), checkpoint: { checkpoint_id: first.checkpoint_id, checkpoint_ns: '' } });
    same(words(other), ['human: plain', 'ai: Hello there, friend.'], 'another branch');
    await client.threads.updateState(id, { values: { messages: [{ type: 'human', content: 'and this', id: 'mine' }] }, asNode: '__start__' });
    same(words((await client.threads.getState(id)).values).at(-1), 'human: and this', 'the state can be written');
    same((await client.threads.getState(id, history[0].checkpoint)).values, history[0].values, 'a state of before');
  },
  async 'threads: search, metadata, copy and delete'() {
    const mark = key();
    const made = await client.threads.create({ metadata: { mark } });
    const id = made.thread_id;
    await client.runs.wait(id, 'agent', { input: human('plain') });
    await client.threads.update(id, { metadata: { more: 1 } });
    const [found] = await client.threads.search({ metadata: { mark } });
    same([found.thread_id, found.metadata.more, found.metadata.graph_id, words(found.values).length], [id, 1, 'agent', 2], 'found');
    same(await client.threads.count({ metadata: { mark } }), 1, 'counted');
    const copy = await client.threads.copy(id);
    same(words((await client.threads.getState(copy.thread_id)).values), words((await client.threads.getState(id)).values), 'the copy');
    await client.threads.delete(id);
    check(await client.threads.get(id).then(() => false, (error) => error.status === 404), 'it is gone');
    same((await client.threads.getState(copy.thread_id)).values.messages.length, 2, 'the copy stays');
  },
  async 'assistants'() {
    const found = await client.assistants.search({ graphId: 'agent' });
    same(found.map((one) => one.graph_id), ['agent'], 'found');
    same((await client.assistants.get(found[0].assistant_id)).name, 'agent', 'by its id');
    check((await client.assistants.getSchemas('agent')).input_schema, 'a schema');
    check((await client.assistants.getGraph('company')).nodes.some((one) => one.id === 'desk'), 'a graph');
    const id = await thread();
    same(words(await client.runs.wait(id, found[0].assistant_id, { input: human('plain') })).length, 2, 'a run by its id');
  },
  async 'errors'() {
    const id = await thread();
    const frames = await all(client.runs.stream(id, 'agent', { input: human('fail'), streamMode: ['values'] }));
    same(frames.filter((one) => one.event === 'error').length, 1, 'an error frame');
    check(await client.runs.wait(id, 'agent', { input: human('fail') }).then(() => false, () => true), 'wait raises');
    same((await client.threads.get(id)).status, 'error', 'the status');
    for (const [what, call, status] of [
      ['thread', () => client.runs.create(crypto.randomUUID(), 'agent', { input: {} }), 404],
      ['assistant', () => client.runs.create(id, 'nobody', { input: {} }), 422],
      ['id', () => client.threads.get('no uuid'), 422],
      ['run', () => client.runs.get(id, crypto.randomUUID()), 404],
      ['run to cancel', () => client.runs.cancel(id, crypto.randomUUID()), 404],
    ]) same(await call().then(() => null, (error) => error.status), status, `an unknown ${what}`);
  },
}, only);
