// Markdown as DOM nodes. Rule: text of users, models and tools becomes text nodes, never markup; see `h` in dom.js.

import { blocksOf } from "./markdown_blocks.js";
import { inlinesOf } from "./markdown_inline.js";
import { copyButton, h } from "./dom.js";

/** Show a text inside of `place`. Blocks that did not change keep their nodes, so that a selection in them stays. */
export function renderMarkdown(place, text, isOpen = false) {
  const blocks = blocksOf(text, isOpen), known = place.shownBlocks ?? [];
  const shown = blocks.map((block, at) => {
    const key = `${block.type} ${block.isOpen} ${block.raw}`, old = known[at];
    if (old?.key === key) return old;
    if (old && block.type === "code" && old.type === "code" && old.update(block)) return { ...old, key };
    return { key, type: block.type, ...drawn(block) };
  });
  known.slice(shown.length).forEach((old) => old.node.remove());
  shown.forEach((one, at) => {
    if (known[at]?.node === one.node) return;
    if (known[at] && at < known.length) known[at].node.replaceWith(one.node);
    else place.append(one.node);
  });
  place.shownBlocks = shown;
}

function drawn(block) {
  if (block.type !== "code") {
    // Once for the outermost block: `auto` does not look into elements that have a direction of their own.
    const node = nodeOf(block);
    node.setAttribute("dir", "auto");
    return { node };
  }
  const code = h("code", {}, block.code), language = h("span", {}, block.language);
  const pre = h("pre", { tabindex: "0", dir: "ltr" }, code);
  const node = h("figure", { class: "code" }, h("figcaption", {}, language, copyButton(() => code.textContent, "Copy code")), pre);
  const update = (next) => {
    const shown = code.textContent;
    if (!next.code.startsWith(shown)) return false;
    if (next.code.length > shown.length) code.append(next.code.slice(shown.length));
    language.textContent = next.language;
    return true;
  };
  return { node, update };
}

function nodeOf(block) {
  const within = (text) => inlines(inlinesOf(text, block.isOpen));
  switch (block.type) {
    case "code": return drawn(block).node;
    case "heading": return h(`h${Math.min(block.level + 2, 6)}`, {}, ...within(block.text));
    case "rule": return h("hr");
    case "quote": return h("blockquote", {}, ...block.blocks.map(nodeOf));
    case "list": return list(block);
    case "table": return table(block);
    default: return h("p", {}, ...within(block.text));
  }
}

function list(block) {
  const isTight = block.items.every((item) => item.blocks.filter((one) => one.type === "paragraph").length < 2);
  const rows = block.items.map((item) => {
    const box = item.isChecked === null ? null : h("input", { type: "checkbox", disabled: "", checked: item.isChecked ? "" : null });
    const inner = item.blocks.map((one) => (isTight && one.type === "paragraph"
      ? h("span", {}, ...inlines(inlinesOf(one.text, one.isOpen))) : nodeOf(one)));
    return h("li", { class: box ? "task" : null }, box, ...inner);
  });
  return block.isOrdered ? h("ol", { start: String(block.start) }, ...rows) : h("ul", {}, ...rows);
}

function table(block) {
  const row = (tag, cells) => h("tr", {}, ...cells.map((cell, at) =>
    h(tag, { class: block.align[at] || null, scope: tag === "th" ? "col" : null }, ...inlines(inlinesOf(cell)))));
  const body = h("tbody", {}, ...block.rows.map((cells) => row("td", cells)));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", block.head)), body));
}

function inlines(found) {
  return found.map((one) => {
    if (typeof one === "string") return one;
    if (one.type === "code") return h("code", { dir: "auto" }, one.text);
    const children = inlines(one.children);
    if (one.type !== "link") return h(one.type, {}, ...children);
    return h("a", { href: one.href, target: "_blank", rel: "noopener noreferrer" }, ...children);
  });
}
