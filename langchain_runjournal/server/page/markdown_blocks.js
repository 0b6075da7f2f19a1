// Pure: the blocks of a Markdown text. Every line belongs to exactly one block; nothing here throws, whatever the text is.
// While an answer streams, its last line is often half of a marker. `isOpen` treats such a line as the block it is about
// to become, or holds it back, so that nothing on the screen changes its kind.

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)(\[[ xX]\] )?(.*)$/;
const DELIMITER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const HALF_DELIMITER = /^[ \t]*\|?[-:| \t]*$/;
const HALF_MARKER = /^\s*(?:`{1,2}|~{1,2}|#{1,6}|[-*+_]{1,3}|\d{1,3}[.)]?|>|\|)\s*$/;
const DEEPEST = 8;

/** Return the blocks of a text: {type, raw, ...}. `raw` is the source of the block, by which a renderer knows it again. */
export function blocksOf(text, isOpen = false, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  if (isOpen && lines.length && HALF_MARKER.test(lines.at(-1))) lines.pop();
  const reader = new Reader(lines, isOpen, depth);
  return reader.read();
}

class Reader {
  constructor(lines, isOpen, depth) {
    this.lines = lines.map((line) => line.replace(/\t/g, "    "));
    this.at = 0;
    this.isOpen = isOpen;
    this.depth = depth;
    this.blocks = [];
  }

  read() {
    while (this.at < this.lines.length) {
      const first = this.at;
      if (!this.lines[first].trim()) {
        this.at += 1;
        continue;
      }
      const block = this.fence() ?? this.heading() ?? this.rule() ?? this.quote() ?? this.list() ?? this.table() ?? this.paragraph();
      block.raw = this.lines.slice(first, this.at).join("\n");
      block.isOpen = this.isOpen && this.at >= this.lines.length;
      this.blocks.push(block);
    }
    return this.blocks;
  }

  get line() {
    return this.lines[this.at];
  }

  fence() {
    const found = FENCE.exec(this.line);
    if (!found) return null;
    const [, marks, info] = found, indent = this.line.search(/\S/);
    const code = [];
    let isClosed = false;
    for (this.at += 1; this.at < this.lines.length; this.at += 1) {
      const end = /^ {0,3}(`{3,}|~{3,}) *$/.exec(this.line);
      if (end && end[1][0] === marks[0] && end[1].length >= marks.length) {
        isClosed = true;
        this.at += 1;
        break;
      }
      code.push(this.line.slice(Math.min(indent, Math.max(0, this.line.search(/\S|$/)))));
    }
    // The name of the language may be half there while its line is the last one.
    const language = code.length || isClosed || !this.isOpen ? info.trim().split(/\s+/)[0] : "";
    return { type: "code", language, code: code.join("\n"), isClosed };
  }

  heading() {
    const found = HEADING.exec(this.line);
    if (!found) return null;
    this.at += 1;
    return { type: "heading", level: found[1].length, text: found[2] ?? "" };
  }

  rule() {
    if (!RULE.test(this.line)) return null;
    this.at += 1;
    return { type: "rule" };
  }

  quote() {
    if (!QUOTE.test(this.line) || this.depth >= DEEPEST) return null;
    const inner = [];
    while (this.at < this.lines.length && (QUOTE.test(this.line) || (this.line.trim() && !this.startsBlock()))) {
      inner.push(this.line.replace(QUOTE, ""));
      this.at += 1;
    }
    return { type: "quote", blocks: this.inside(inner) };
  }

  list() {
    const first = ITEM.exec(this.line);
    if (!first || this.depth >= DEEPEST) return null;
    const indent = first[1].length, isOrdered = /\d/.test(first[2]), items = [];
    while (this.at < this.lines.length) {
      const found = ITEM.exec(this.line);
      if (!found || found[1].length > indent + 3 || found[1].length < indent || /\d/.test(found[2]) !== isOrdered) break;
      if (RULE.test(this.line)) break;
      items.push(this.item(found));
    }
    return { type: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : 1, items };
  }

  item(found) {
    const width = found[1].length + found[2].length + 1, inner = [found[5]];
    this.at += 1;
    while (this.at < this.lines.length) {
      const line = this.line, indent = line.search(/\S|$/);
      if (!line.trim()) {
        // A blank line stays in the item if what follows is indented, or is the next item.
        const next = this.lines.slice(this.at + 1).find((one) => one.trim());
        if (next === undefined) break;
        if (next.search(/\S/) < Math.min(width, found[1].length + 2)) {
          if (ITEM.test(next) && next.search(/\S/) >= found[1].length) this.at += 1;
          break;
        }
        inner.push("");
      } else if (indent >= Math.min(width, found[1].length + 2)) {
        inner.push(line.slice(Math.min(indent, width)));
      } else if (ITEM.test(line) || this.startsBlock() || !inner.at(-1)) {
        break;
      } else {
        inner.push(line);
      }
      this.at += 1;
    }
    const isChecked = found[4] ? /x/i.test(found[4]) : null;
    return { isChecked, blocks: this.inside(inner) };
  }

  table() {
    const head = this.line, next = this.lines[this.at + 1];
    if (!head.includes("|")) return null;
    const isPending = this.isOpen && /^ {0,3}\|/.test(head) && this.lines.length - this.at <= 2 && HALF_DELIMITER.test(next ?? "");
    if (!isPending && !(next !== undefined && next.includes("-") && DELIMITER.test(next))) return null;
    const names = cells(head), marks = next === undefined ? [] : cells(next);
    if (!isPending && marks.length !== names.length) return null;
    const align = names.map((_, at) => alignment(marks[at] ?? ""));
    const rows = [];
    for (this.at += 2; this.at < this.lines.length; this.at += 1) {
      if (!this.line.trim() || (!this.line.includes("|") && this.startsBlock())) break;
      const row = cells(this.line).slice(0, names.length);
      rows.push([...row, ...Array(names.length - row.length).fill("")]);
    }
    this.at = Math.min(this.at, this.lines.length);
    return { type: "table", align, head: names, rows };
  }

  paragraph() {
    const words = [this.line];
    for (this.at += 1; this.at < this.lines.length && this.line.trim() && !this.startsBlock(); this.at += 1) words.push(this.line);
    return { type: "paragraph", text: words.join("\n").trimEnd() };
  }

  startsBlock() {
    const item = ITEM.exec(this.line);
    return FENCE.test(this.line) || HEADING.test(this.line) || RULE.test(this.line) || QUOTE.test(this.line)
      || (item !== null && item[5] !== "" && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1));
  }

  inside(lines) {
    const isOpen = this.isOpen && this.at >= this.lines.length;
    return blocksOf(lines.join("\n"), isOpen, this.depth + 1);
  }
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, ""), found = [];
  let cell = "", inCode = false;
  for (let at = 0; at < inner.length; at += 1) {
    const sign = inner[at];
    if (sign === "\\" && inner[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (sign === "|" && !inCode) {
      found.push(cell.trim());
      cell = "";
    } else {
      if (sign === "`") inCode = !inCode && inner.indexOf("`", at + 1) > 0;
      cell += sign;
    }
  }
  if (cell.trim()) found.push(cell.trim());
  return found;
}

function alignment(mark) {
  const left = mark.startsWith(":"), right = mark.endsWith(":") && mark.length > 1;
  return left && right ? "center" : right ? "end" : left ? "start" : "";
}
