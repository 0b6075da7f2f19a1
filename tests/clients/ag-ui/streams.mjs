// Feeds recorded streams to a version's own verifier and reducer: node streams.mjs VERSION < streams.json
// In: [{messages, live, late: [{cut, frames}]}]. Out: [{messages, end, problems}], of the page that stayed.
import { agentOf, clean, same } from './agent.mjs';

const Page = await agentOf(process.argv[2]);
const encoder = new TextEncoder();
const text = (frames) => encoder.encode(frames.map((frame) => `data: ${frame}\n\n: hb\n`).join(''));

function response(frames, isCut) {
  const bytes = [text(frames)];
  const body = new ReadableStream({
    pull(controller) {
      if (bytes.length) controller.enqueue(bytes.pop());
      else if (isCut) controller.error(new TypeError('network error'));
      else controller.close();
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
}

const open = (answers, messages) =>
  new Page({ url: 'http://x/ag-ui/agents/a', threadId: 't', fetch: async () => answers.shift(), initialMessages: messages });

let input = '';
for await (const chunk of process.stdin) input += chunk;
const report = [];
for (const { messages, live, late } of JSON.parse(input)) {
  const stayed = await open([response(live)], messages).run();
  const problems = [...stayed.errors];
  for (const { cut, frames } of late) {
    const pages = [open([response(live.slice(0, cut), true), response(frames)], messages), open([response(frames)], [])];
    await pages[0].run();
    for (const page of pages) {
      await page.connect();
      problems.push(...page.errors);
      const shown = (one) => one.messages.filter(({ role, content }) => role !== 'reasoning' || content);
      try {
        same(shown(page), shown(stayed), `the page after ${cut} of ${live.length} frames`);
        same(page.end, stayed.end, 'the end');
      } catch (error) {
        problems.push(String(error));
      }
    }
  }
  report.push({ messages: clean(stayed.messages), end: clean(stayed.end), problems });
}
process.stdout.write(JSON.stringify(report), () => process.exit(0));
