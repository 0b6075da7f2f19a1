// Feeds recorded streams to a version's own transport, schema and chat: node streams.mjs VERSION < streams.json
// In: [[frame, ...], ...]. Out: what each stream became, or what the client refused.
import { check, chatOf, same } from './chat.mjs';

const version = process.argv[2];
const { ai, Chat } = await chatOf(version);
const encoder = new TextEncoder();

function response(frames, ending) {
  const bytes = frames.map((frame, at) => encoder.encode(`id: r:${at}\ndata: ${frame}\n\n: hb\n`));
  return new Response(
    new ReadableStream({
      async pull(controller) {
        const next = bytes.shift();
        if (next) controller.enqueue(next);
        else if (ending === 'cut') controller.error(new TypeError('network error'));
        else controller.close();
      },
    }),
    { headers: { 'content-type': 'text/event-stream' } },
  );
}

function open(sent, resumed, messages) {
  const fetch = async (url, init) => (init.method === 'POST' ? response(...sent) : resumed ? response(...resumed) : new Response(null, { status: 204 }));
  const errors = [];
  const transport = new ai.DefaultChatTransport({ api: '/ai-sdk/chat', fetch });
  return { chat: new Chat({ id: 't', transport, messages, onError: (error) => errors.push(error) }), errors };
}

const user = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'hi' }] };
const clean = (message) => JSON.parse(JSON.stringify(message ?? null));
const refused = (errors, frames) =>
  errors.filter((error) => !frames.some((frame) => frame.includes(JSON.stringify(error.message)))).map(String);

async function whole(frames) {
  const { chat, errors } = open([frames], undefined, []);
  await chat.sendMessage(structuredClone(user));
  return { chat, last: clean(chat.messages.at(-1)), refused: refused(errors, frames) };
}

async function reload(frames, cut, expected) {
  const first = open([frames.slice(0, cut), 'cut'], undefined, []);
  await first.chat.sendMessage(structuredClone(user));
  check(first.errors.length === 1, `one error: ${first.errors}`);
  // A new page: the thread has the message of the user, and nothing of the run that is running.
  const { chat, errors } = open([], [frames], [structuredClone(user)]);
  await chat.resumeStream();
  same(clean(chat.messages.at(-1)), expected, `a reload after ${cut} of ${frames.length} frames`);
  same(refused(errors, frames), [], 'nothing is refused');
  check(chat.messages.length <= 2, 'one bubble');
  if (version !== 'ai6' && version !== 'ai7') return;
  // The same page comes back by itself. Version 5 would show what it has twice: see docs/frontends.md.
  first.chat.transport.fetch = async () => response(frames);
  await first.chat.resumeStream();
  same(clean(first.chat.messages.at(-1)), expected, `the same page after ${cut} of ${frames.length} frames`);
}

let text = '';
for await (const chunk of process.stdin) text += chunk;
const report = [];
for (const { frames, cuts } of JSON.parse(text)) {
  const { last, refused: no } = await whole(frames);
  const problems = [...no];
  for (const cut of cuts) await reload(frames, cut, last).catch((error) => problems.push(String(error)));
  report.push({ message: last, problems });
}
process.stdout.write(JSON.stringify(report), () => process.exit(0));
