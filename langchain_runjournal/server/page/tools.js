// A tool call: one line that opens to its arguments and its result.

import { copyButton, h, icon } from "./dom.js";

const LABELS = {
  asked: "requested", running: "running", done: "done", failed: "failed", interrupted: "interrupted", waiting: "waits for you",
};
const LONGEST = 200_000;

/** Return the view of a tool call: {node, update}. */
export function toolView() {
  const name = h("b", { dir: "ltr" }), brief = h("span", { class: "brief", dir: "auto" }), label = h("span", { class: "label" });
  const mark = h("span", { class: "mark", "aria-hidden": "true" });
  const args = section("Arguments"), result = section("Result");
  const node = h("details", { class: "tool" }, h("summary", {}, mark, name, brief, label), args.node, result.node);
  let shown = null;
  const update = (part, isOpen, known) => {
    const { status, result: said } = known;
    const input = typeof part.args === "string" && known.args ? known.args : part.args;
    const key = JSON.stringify([part.name, input, status, said]);
    if (key === shown) return;
    shown = key;
    node.dataset.status = status;
    name.textContent = part.name || known.name || "tool";
    brief.textContent = briefly(input);
    label.textContent = LABELS[status];
    mark.replaceChildren(...(status === "done" ? [icon("check")] : status === "failed" || status === "interrupted" ? [icon("close")] : []));
    args.show(pretty(input));
    result.show(said ? pretty(asJson(said)) : "");
  };
  return { node, update };
}

function section(title) {
  const code = h("code", {});
  const node = h("div", { class: "field" }, h("div", { class: "head" }, h("span", {}, title), copyButton(() => code.textContent, `Copy: ${title}`)),
    h("pre", { tabindex: "0", dir: "auto" }, code));
  return {
    node,
    show: (text) => {
      node.hidden = !text;
      code.textContent = text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} more characters` : text;
    },
  };
}

/** Return a value as it is read best: text as it is, everything else as indented JSON. */
export function pretty(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function asJson(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function briefly(input) {
  if (typeof input === "string") return input.slice(0, 120);
  const values = Object.entries(input ?? {}).map(([key, value]) => (typeof value === "string" ? value : `${key}: ${JSON.stringify(value)}`));
  return values.join(", ").slice(0, 120);
}
