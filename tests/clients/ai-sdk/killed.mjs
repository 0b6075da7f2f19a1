// Pages of all versions whose server is killed and starts again: node killed.mjs URL
// Out: the line "held" when all have words, and in the end {version: null or what went wrong}.
import { VERSIONS, chatOf, check, same, textOf } from './chat.mjs';

const url = `${process.argv[2]}/agent/ai-sdk/chat`;
const back = async (path) => {
  for (let tries = 0; ; tries++) {
    try {
      const response = await fetch(`${url}/${path}`);
      if (response.ok) return await response.json();
    } catch {}
    check(tries < 300, 'the server comes back');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
};

async function begin(version) {
  const { ai, Chat } = await chatOf(version);
  const open = (messages) => new Chat({ id: version, messages, transport: new ai.DefaultChatTransport({ api: url }) });
  const chat = open([]);
  const sending = chat.sendMessage({ text: 'hold text:never' });
  await chat.until(() => textOf(chat.messages[1]).startsWith('First'));
  return { version, open, chat, sending };
}

async function finish({ version, open, chat, sending }) {
  await sending;
  check(chat.status === 'error', 'a server that was killed has not finished');
  const page = open(await back(`${version}/messages`));
  await page.resumeStream();
  // The process that came back has settled the run, or does so because this page has looked.
  let messages = page.messages;
  for (let tries = 0; messages[1]?.metadata.status !== 'interrupted' && tries < 100; tries++) {
    messages = await back(`${version}/messages`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const partial = messages[1].parts.find((part) => part.type === 'data-partial');
  same([messages.length, messages[1].id, textOf(messages[1])], [2, chat.messages[1].id, textOf(chat.messages[1])], 'the words');
  same(partial.data.cause, 'crash', 'the cause');
  const next = open(messages);
  await next.sendMessage({ text: 'plain' });
  check(next.status === 'ready', `the conversation continues: ${next.error}`);
  same(textOf(next.messages.at(-1)), 'Hello there, friend.', 'the conversation continues');
}

const pages = await Promise.all(VERSIONS.map(begin));
console.log('held');
const report = {};
for (const page of pages) report[page.version] = await finish(page).then(() => null, (error) => String(error.stack ?? error));
process.stdout.write(JSON.stringify(report), () => process.exit(0));
