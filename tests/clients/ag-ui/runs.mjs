// Each journey of a page against a real server: node runs.mjs VERSION URL. Out: {journey: null or what went wrong}.
import { agentOf, check, clean, cutting, same, textOf } from './agent.mjs';

const [, , version, url] = process.argv;
const Page = await agentOf(version);
const knowsAll = version === 'agui1';
const api = `${url}/agent/ag-ui`;
let count = 0;
const fresh = (what) => `${version} ${what} ${++count}`;
const open = (threadId, more = {}) => new Page({ url: `${api}/agents/agent`, threadId, ...more });
const stop = async (id) => fetch(`${api}/threads/${encodeURIComponent(id)}/stop?wait=1`, { method: 'POST' });
const gate = async (key) => fetch(`${url}/gates/${encodeURIComponent(key)}`, { method: 'POST' });
const fine = (page, end = 'RUN_FINISHED') => same([page.errors, page.end?.type], [[], end], 'the stream');

// What a page that comes to the thread now shows: the same.
async function agrees(page) {
  const other = await open(page.agent.threadId).connect();
  same([other.errors, other.messages, other.end], [[], page.messages, page.end], 'a page that comes later');
}

const HELD = {
  'hold text': (page) => textOf(page).startsWith('First'),
  'hold think': (page) => page.messages.some(({ role, content }) => role === 'reasoning' && content),
  'hold input': (page) => page.messages.some(({ toolCalls }) => toolCalls?.[0].function.arguments.includes('Oslo')),
  'hold tool': (page) => page.messages.some(({ toolCalls }) => toolCalls?.[0].function.name === 'slow'),
};

async function held(what) {
  const id = fresh(what);
  const cuts = {};
  const page = open(id, { fetch: cutting(cuts) });
  const sending = page.send(`${what}:${id}`);
  await page.until(HELD[what], what);
  return { id, page, sending, cuts };
}

const journeys = {
  async 'send, and send again'() {
    const page = await open(fresh('plain')).send('plain');
    fine(page);
    same(textOf(page), 'Hello there, friend.', 'the answer');
    await agrees(page);
    await page.send('echo');
    fine(page);
    same(textOf(page).split('|').slice(1).join('|'), 'human: plain | ai: Hello there, friend. | human: echo', 'the thread');
    await agrees(page);
  },
  async 'thoughts'() {
    const page = await open(fresh('think')).send('think');
    fine(page);
    const said = page.messages.slice(1).map(({ role, content }) => [role, content]);
    same(said, [['reasoning', 'Let me think about it.'], ['assistant', 'Here it is.']], 'the messages');
    await agrees(page);
  },
  async 'tools with arguments and results'() {
    const page = await open(fresh('tools')).send('tools');
    fine(page);
    const { toolCalls } = page.messages.find(({ toolCalls }) => toolCalls);
    same(toolCalls.map((call) => [call.function.name, JSON.parse(call.function.arguments).city]), [['weather', 'Oslo'], ['weather', 'Rome']], 'the calls');
    const results = page.messages.filter(({ role }) => role === 'tool').map(({ toolCallId, content }) => [toolCallId, content]);
    same(results, [[toolCalls[0].id, 'sunny in Oslo'], [toolCalls[1].id, 'sunny in Rome']], 'the results');
    const steps = page.events.filter(({ type }) => type.startsWith('STEP_')).map(({ type, stepName }) => `${type} ${stepName}`);
    check(steps.includes('STEP_STARTED model') && steps.includes('STEP_FINISHED model'), `the steps: ${steps}`);
    await agrees(page);
  },
  async 'what a tool reports'() {
    const page = await open(fresh('progress')).send('progress');
    same(page.customs.map(({ name, value }) => [name, value.done ?? value]), [['progress', 0.5], ['custom', 'half'], ['progress', 1]], 'custom events');
    const other = await open(page.agent.threadId).connect();
    same(other.customs, page.customs, 'custom events of a page that comes later');
  },
  async 'a failure'() {
    const page = await open(fresh('fail')).send('fail');
    fine(page, 'RUN_ERROR');
    same(textOf(page), 'Well, ', 'the words stay');
    check(!JSON.stringify(page.events).includes('secret'), 'no internals');
    await agrees(page);
    await page.send('plain');
    fine(page);
  },
  async 'stop'() {
    const { id, page, sending } = await held('hold text');
    same((await stop(id)).status, 200, 'stopped');
    await sending;
    if (knowsAll) same([page.errors, page.end.outcome.type], [[], 'cancelled'], 'the end');
    same([textOf(page), page.messages.at(-1).metadata?.runjournal?.reason], ['First half, ', 'stop'], 'partial, and marked');
    same((await stop(id)).status, 204, 'nothing is left to stop');
    await page.send('plain');
    fine(page);
    same(textOf(page), 'First half, |Hello there, friend.', 'the conversation continues');
    await agrees(page);
  },
  async 'leave, and come back'() {
    const { id, page, sending } = await held('hold text');
    page.agent.abortRun();
    await sending;
    const connecting = page.connect();
    await page.until(HELD['hold text']);
    await gate(id);
    await connecting;
    fine(page);
    same(textOf(page), 'First half, second half.', 'all of it');
    await agrees(page);
  },
  async 'two readers, and one that comes late'() {
    const { id, page, sending } = await held('hold think');
    const others = [open(id), open(id)];
    const reading = others.map((one) => one.connect());
    await Promise.all(others.map((one) => one.until(HELD['hold think'])));
    await gate(id);
    await Promise.all([sending, ...reading]);
    fine(page);
    for (const other of others) same([other.errors, other.messages], [[], page.messages], 'the same page');
  },
  async 'the same run id again is the same run'() {
    const id = fresh('again');
    const runId = `no uuid ${id}`;
    const one = await open(id).send('count', { runId });
    const two = open(id);
    two.add('count', one.messages[0].id);
    await two.run({ runId });
    fine(two);
    same([two.messages, two.end.runId], [one.messages, runId], 'the same');
  },
  async 'a question'() {
    const page = await open(fresh('ask')).send('ask');
    fine(page);
    const [question] = page.end.outcome.interrupts;
    same([question.message, page.agent.pendingInterrupts.length], ['May I?', 1], 'the question');
    await agrees(page);
    // A page that was reloaded answers.
    const other = await open(page.agent.threadId).connect();
    await other.run({ resume: [{ interruptId: question.id, status: 'resolved', payload: 'yes' }] });
    fine(other);
    same(other.messages.find(({ role }) => role === 'tool').content, 'the human says yes', 'the answer arrived');
    same(other.agent.pendingInterrupts, [], 'nothing is asked');
    await agrees(other);
  },
  async 'answer again, and edit'() {
    const page = await open(fresh('count')).send('count');
    const before = textOf(page);
    page.agent.setMessages(page.messages.slice(0, 1));
    await page.run();
    fine(page);
    check(textOf(page) !== before && page.messages.length === 2, 'another answer');
    page.agent.setMessages([{ ...page.messages[0], content: 'echo' }]);
    await page.run();
    same(textOf(page), 'human: echo', 'the edit');
    await agrees(page);
  },
  async 'a busy thread'() {
    const { id, page, sending } = await held('hold text');
    const other = await open(id).send('plain');
    check(other.errors[0]?.includes('409'), `refused: ${other.errors}`);
    await gate(id);
    await sending;
    fine(page);
    await other.run();
    fine(other);
    same(textOf(other), 'First half, second half.|Hello there, friend.', 'the refused message, sent again');
  },
  async 'a thread without a run'() {
    const page = await open(fresh('none')).connect();
    check(page.errors[0]?.includes('404'), 'there is nothing to connect to');
  },
};

for (const what of Object.keys(HELD)) {
  journeys[`${what}: the connection breaks, and the page comes back`] = async () => {
    const { id, page, sending, cuts } = await held(what);
    cuts.now();
    await sending;
    same(page.errors.length, 1, 'an error, since the run is not over');
    const broken = clean(page.messages);
    const connecting = page.connect();
    await page.until((one) => one.events.some(({ type }) => type === 'MESSAGES_SNAPSHOT') && HELD[what](one));
    for (const { id: known, content = '' } of broken) {
      check(page.messages.find((one) => one.id === known)?.content?.startsWith(content) ?? !content, `all of ${known} that was there`);
    }
    await gate(id);
    await connecting;
    fine(page);
    await agrees(page);
  };
}

const report = {};
await Promise.all(
  Object.entries(journeys).map(async ([name, journey]) => {
    report[name] = await journey().then(() => null, (error) => String(error.stack ?? error));
  }),
);
process.stdout.write(JSON.stringify(report), () => process.exit(0));
