// Pure: the inline marks of a Markdown text as a tree: strings and {type, children | text, href}. Linear in practice: a mark
// without its end is looked for once, and the depth is bounded.

const DEEPEST = 8;
const BARE = /^https?:\/\/[^\s<>"'`]+/;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const WORD = /[\p{L}\p{N}]/u;

/** Return the address if it may be opened from a chat, else null: only http, https and mailto. */
export function safeAddress(text) {
  const trimmed = text.trim();
  if (!/^(https?:\/\/|mailto:)/i.test(trimmed)) return null;
  try {
    const url = new URL(trimmed);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Return the tree of a text. `isOpen`: more may come, so a mark without its end reaches to the end of the text. */
export function inlinesOf(text, isOpen = false, depth = 0) {
  return new Inline(text, isOpen, depth).read();
}

class Inline {
  constructor(text, isOpen, depth) {
    this.text = text;
    this.isOpen = isOpen;
    this.depth = depth;
    this.at = 0;
    this.words = "";
    this.found = [];
    this.unclosed = new Set();
  }

  read() {
    while (this.at < this.text.length) {
      if (!this.mark()) {
        this.words += this.text[this.at];
        this.at += 1;
      }
    }
    this.flush();
    return this.found;
  }

  flush() {
    if (this.words) this.found.push(this.words);
    this.words = "";
  }

  add(node, end) {
    this.flush();
    this.found.push(node);
    this.at = end;
    return true;
  }

  mark() {
    const sign = this.text[this.at];
    switch (sign) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "*": case "_": case "~": return this.emphasis(sign);
      case "!": case "[": return this.link();
      case "<": return this.address();
      case "h": return this.bare();
      default: return false;
    }
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === undefined || !/[!-/:-@[-`{-~]/.test(next)) return false;
    this.words += next;
    this.at += 2;
    return true;
  }

  code() {
    const marks = /^`+/.exec(this.text.slice(this.at, this.at + 64))[0];
    const start = this.at + marks.length;
    const end = this.find(marks, start, (at) => this.text[at - 1] !== "`" && this.text[at + marks.length] !== "`");
    if (end < 0 && !(this.isOpen && this.text.length > start)) {
      this.words += marks;
      this.at = start;
      return true;
    }
    const inner = this.text.slice(start, end < 0 ? undefined : end).replace(/\n/g, " ");
    const text = /^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner;
    return this.add({ type: "code", text }, end < 0 ? this.text.length : end + marks.length);
  }

  emphasis(sign) {
    let size = 1;
    while (this.text[this.at + size] === sign && size < 3) size += 1;
    const before = this.text[this.at - 1] ?? " ", after = this.text[this.at + size] ?? " ";
    if (/\s/.test(after) || (sign === "_" && WORD.test(before)) || (sign === "~" && size !== 2) || this.depth >= DEEPEST) {
      // While it streams, marks at the very end are held back: their word follows.
      if (this.isOpen && this.at + size >= this.text.length && !WORD.test(before)) this.at = this.text.length;
      else this.take(size);
      return true;
    }
    const marks = sign.repeat(size), start = this.at + size;
    const end = this.find(marks, start, (at) => this.closes(at, sign, size));
    if (end < 0 && !(this.isOpen && size > 1)) {
      this.take(size);
      return true;
    }
    const inner = this.text.slice(start, end < 0 ? undefined : end).replace(end < 0 ? /[*_~]+$/ : /$^/, "");
    let children = inlinesOf(inner, this.isOpen && end < 0, this.depth + 1);
    if (size === 3) children = [{ type: "em", children }];
    const type = sign === "~" ? "del" : size === 1 ? "em" : "strong";
    return this.add({ type, children }, end < 0 ? this.text.length : end + size);
  }

  closes(at, sign, size) {
    if (/\s/.test(this.text[at - 1]) || (sign === "_" && WORD.test(this.text[at + size] ?? " "))) return false;
    // `*` inside `**...**` is a mark of its own.
    if (size === 1 && (this.text[at + 1] === sign || this.text[at - 1] === sign)) return false;
    return true;
  }

  take(size) {
    this.words += this.text.slice(this.at, this.at + size);
    this.at += size;
  }

  /** Return where `marks` stand next, or -1. A search that found nothing is not repeated. */
  find(marks, from, fits) {
    if (this.unclosed.has(marks)) return -1;
    for (let at = this.text.indexOf(marks, from); at >= 0; at = this.text.indexOf(marks, at + 1)) {
      if (at > from && this.text[at - 1] !== "\\" && fits(at)) return at;
    }
    this.unclosed.add(marks);
    return -1;
  }

  link() {
    const start = this.at + (this.text[this.at] === "!" ? 1 : 0);
    if (this.text[start] !== "[" || this.depth >= DEEPEST || this.unclosed.has("](")) return false;
    const end = this.closing(start);
    if (end < 0 || this.text[end + 1] !== "(") {
      return end < 0 && this.isOpen && this.text.length - start < 200 ? this.add(this.text.slice(start + 1), this.text.length) : false;
    }
    const close = this.target(end + 2), label = this.text.slice(start + 1, end);
    if (close < 0) {
      if (this.isOpen && !/\s/.test(this.text.slice(end + 2))) return this.add(label, this.text.length);
      return false;
    }
    const target = this.text.slice(end + 2, close).trim().replace(/^<([^>]*)>.*$/, "$1").replace(/\s+["'(].*$/s, "");
    const href = safeAddress(target), children = inlinesOf(label, false, this.depth + 1);
    // An address that is not opened is shown as it was written, so that nothing of the text is hidden.
    return this.add(href ? { type: "link", href, children } : this.text.slice(this.at, close + 1), close + 1);
  }

  closing(start) {
    let open = 0;
    const last = Math.min(this.text.length, start + 2000);
    for (let at = start; at < last; at += 1) {
      if (this.text[at] === "\\") at += 1;
      else if (this.text[at] === "[") open += 1;
      else if (this.text[at] === "]" && (open -= 1) === 0) return at;
    }
    return -1;
  }

  target(from) {
    let open = 1;
    const last = Math.min(this.text.length, from + 4000);
    for (let at = from; at < last; at += 1) {
      if (this.text[at] === "\n") return -1;
      if (this.text[at] === "(") open += 1;
      if (this.text[at] === ")" && (open -= 1) === 0) return at;
    }
    return -1;
  }

  address() {
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(this.text.slice(this.at, this.at + 2000));
    const href = found && safeAddress(found[1]);
    return href ? this.add({ type: "link", href, children: [found[1]] }, this.at + found[0].length) : false;
  }

  bare() {
    if (this.at > 0 && WORD.test(this.text[this.at - 1])) return false;
    const found = BARE.exec(this.text.slice(this.at, this.at + 2000));
    if (!found) return false;
    let shown = found[0].replace(/[.,;:!?*_~]+$/, "");
    while (shown.endsWith(")") && shown.split(")").length > shown.split("(").length) shown = shown.slice(0, -1);
    const href = safeAddress(shown);
    return href ? this.add({ type: "link", href, children: [shown] }, this.at + shown.length) : false;
  }
}
