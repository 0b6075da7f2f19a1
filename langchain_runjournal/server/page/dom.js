// Elements by name. The only place that makes elements: children are nodes or text, and no string is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12l5 5L20 7",
  edit: "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4",
  again: "M20 12a8 8 0 1 1-2.5-5.8M20 3v5h-5",
  line: "M4 6h9M8 12h10M6 18h8",
  send: "M12 20V5M5 12l7-7 7 7",
  stop: "M7 7h10v10H7z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  moon: "M20 14A8.5 8.5 0 1 1 10 4a7 7 0 0 0 10 10",
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 3v18",
  close: "M6 6l12 12M18 6L6 18",
  down: "M12 5v14M5 12l7 7 7-7",
};

/** Return an element. `props`: attributes; null leaves one out; a function becomes a listener (`onclick`). */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Return an icon, which is hidden from screen readers: the button around it has the name. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  for (const [key, value] of [["viewBox", "0 0 24 24"], ["aria-hidden", "true"], ["class", `icon ${name}`]]) svg.setAttribute(key, value);
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Return a button that shows an icon only. */
export function iconButton(name, label, onclick, more = {}) {
  return h("button", { type: "button", class: "bare", "aria-label": label, title: label, onclick, ...more }, icon(name));
}

/** Return a button that copies what `text()` returns, and says that it did. */
export function copyButton(text, label) {
  const button = iconButton("copy", label, async () => {
    const isDone = await copied(text());
    button.replaceChildren(icon(isDone ? "check" : "close"));
    button.setAttribute("aria-label", isDone ? "Copied" : "Not copied");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
    }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text); // the clipboard exists only on https and localhost
  }
}

function copiedBySelection(text) {
  const box = h("textarea", { class: "offscreen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const isDone = document.execCommand("copy");
  box.remove();
  return isDone;
}

/** Return a random UUID. `crypto.randomUUID` exists only on https and localhost. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
