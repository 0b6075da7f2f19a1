// Pages of all versions whose server is killed and starts again: node killed.mjs URL
// Out: the line "held" when all have words, and in the end {version: null or what went wrong}.
import { VERSIONS, agentOf, check, same, textOf } from './agent.mjs';

const url = `${process.argv[2]}/agent/ag-ui/agents/agent`;

async function begin(version) {
  const Page = await agentOf(version);
  const page = new Page({ url, threadId: version });
  const sending = page.send('hold text:never');
  await page.until((one) => textOf(one).startsWith('First'));
  return { version, Page, page, sending };
}

async function finish({ version, Page, page, sending }) {
  await sending;
  check(page.errors.length === 1 && !page.end, 'a server that was killed has not finished');
  // The process that comes back settles the run, or does so because this page looks.
  for (let tries = 0; ; tries++) {
    await page.connect();
    if (page.end?.message === 'The run was cut off before it was complete.') break;
    check(tries < 300, `the run is settled: ${JSON.stringify([page.errors, page.end])}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  same([page.end.type, page.end.code], ['RUN_ERROR', 'crash'], 'the end');
  same([textOf(page), page.messages.at(-1).metadata?.runjournal?.reason], ['First half, ', 'crash'], 'every word, and marked');
  await page.send('plain');
  same([page.errors, page.end?.type, textOf(page)], [[], 'RUN_FINISHED', 'First half, |Hello there, friend.'], 'the conversation continues');
  const other = await new Page({ url, threadId: version }).connect();
  same(other.messages, page.messages, 'the thread');
}

const pages = await Promise.all(VERSIONS.map(begin));
console.log('held');
const report = {};
for (const page of pages) report[page.version] = await finish(page).then(() => null, (error) => String(error.stack ?? error));
process.stdout.write(JSON.stringify(report), () => process.exit(0));
