// The messages as elements. An element is kept as long as its message is there, and changes only where the message did.

import { copyButton, h, icon, iconButton } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { toolView } from "./tools.js";
import { questionView } from "./questions.js";
import { timelineUrl } from "./api.js";

const WHY = {
  stop: "Stopped", disconnect: "Cut off: the client disconnected", timeout: "Cut off: it took too long",
  shutdown: "Cut off: the server was shut down", crash: "Cut off: the server was killed",
  superseded: "Cut off by the next message", error: "Cut off by an error", length: "Cut off: it reached its length limit",
  incomplete: "Cut off: the stream ended early",
};
export const why = (cause) => WHY[cause] ?? "Cut off";

/** Draws a conversation into `place`. `actions`: send, edit, regenerate, answer. */
export class MessageList {
  constructor(place, actions) {
    this.place = place;
    this.actions = actions;
    this.views = new Map();
    this.tail = h("div", { class: "tail" });
    this.shown = "";
  }

  clear() {
    this.views.clear();
    this.shown = "";
    this.tail.replaceChildren();
    this.place.replaceChildren();
  }

  draw(conversation) {
    const items = conversation.items(), next = new Map();
    let human = null, since = 0;
    items.forEach((item, at) => {
      if (item.kind === "human") [human, since] = [item, at + 1];
      const view = this.views.get(item.key) ?? (item.kind === "human" ? new HumanView(this.actions) : new AnswerView());
      next.set(item.key, view);
      view.update(item, conversation);
      const following = items[at + 1];
      if (view instanceof AnswerView) {
        const isLast = !following || following.kind === "human";
        view.foot(isLast ? this.footOf(human, items.slice(since, at + 1), conversation, !following) : null);
      }
    });
    for (const [key, view] of this.views) if (!next.has(key)) view.node.remove();
    this.views = next;
    this.place.classList.toggle("busy", Boolean(conversation.live));
    this.drawTail(conversation, items);
    let before = null;
    for (const view of next.values()) {
      const expected = before ? before.nextSibling : this.place.firstChild;
      if (view.node !== expected) this.place.insertBefore(view.node, expected);
      before = view.node;
    }
    if (this.place.lastChild !== this.tail) this.place.append(this.tail);
  }

  /** Return what stands below the answers to one message. */
  footOf(human, answers, conversation, isEnd) {
    const live = conversation.live, last = answers.at(-1);
    if (last.isLive || (isEnd && live)) return null;
    const text = () => answers.flatMap((one) => one.parts).filter((part) => part.type === "text").map((part) => part.text.trim()).join("\n\n");
    return { runId: last.runId, text, regenerate: human?.id && !live && !conversation.question() ? () => this.actions.regenerate(human) : null };
  }

  drawTail(conversation, items) {
    const asked = conversation.question(), last = items.at(-1), live = conversation.live;
    if (asked) {
      const key = JSON.stringify(asked);
      if (this.shown !== `question ${key}`) this.tail.replaceChildren(questionView(asked, this.actions.answer));
      this.shown = `question ${key}`;
      return;
    }
    const state = this.tailState(conversation, last, live);
    if (state.key === this.shown) return;
    this.shown = state.key;
    this.tail.replaceChildren(...state.nodes());
  }

  tailState(conversation, last, live) {
    if (live) {
      const isSpeaking = last?.kind === "ai" && last.isLive && last.parts.some((part) => part.type === "text");
      const words = live.isStopping ? "Stopping…" : live.progress;
      if (isSpeaking && !words) return { key: "", nodes: () => [] };
      return { key: `live ${words}`, nodes: () => [h("div", { class: "thinking" }, h("i"), h("i"), h("i"), h("span", { dir: "auto" }, words))] };
    }
    if (!last || conversation.pending.length) return { key: "", nodes: () => [] };
    const ending = conversation.ending(last.runId), error = ending?.status === "failed" ? ending.error ?? "It failed." : null;
    const isCut = last.kind === "human" || last.cut || error || last.parts?.at(-1)?.type === "tool";
    if (!isCut || !conversation.isLoaded) return { key: "", nodes: () => [] };
    const isAnswered = last.kind === "ai";
    const button = isAnswered
      ? h("button", { type: "button", class: "more", onclick: () => this.actions.send("Continue.") }, "Continue")
      : h("button", { type: "button", class: "more", onclick: () => this.actions.regenerate(last) }, icon("again"), "Try again");
    const failed = error ? h("div", { class: "failed", role: "note" }, h("b", {}, "The answer failed"), h("span", { dir: "auto" }, error)) : null;
    return { key: `cut ${isAnswered} ${error} ${last.key}`, nodes: () => [failed, button].filter(Boolean) };
  }
}

class HumanView {
  constructor(actions) {
    this.actions = actions;
    this.words = h("div", { class: "words", dir: "auto" });
    this.buttons = h("div", { class: "buttons" });
    this.note = h("div", { class: "note", role: "note" });
    this.node = h("article", { class: "human", "aria-label": "You" }, this.words, this.note, this.buttons);
  }

  update(item, conversation) {
    this.item = item;
    const canEdit = Boolean(item.id) && !item.pendingState && !conversation.live && !conversation.question();
    const key = JSON.stringify([item.text, item.pendingState, item.problem, canEdit]);
    if (key === this.key || this.isEditing) return;
    this.key = key;
    this.words.textContent = item.text;
    this.node.classList.toggle("pending", Boolean(item.pendingState));
    this.note.replaceChildren(...this.notes(item));
    this.buttons.replaceChildren(copyButton(() => item.text, "Copy the message"),
      ...(canEdit ? [iconButton("edit", "Edit the message", () => this.edit())] : []));
  }

  notes(item) {
    if (item.pendingState === "refused") {
      return [`Not sent: ${item.problem} `, h("button", { type: "button", onclick: () => this.actions.takeBack(item) }, "Back to the box")];
    }
    return item.pendingState === "waiting" ? ["Waiting for the running answer…"] : item.pendingState === "retrying" ? ["Not sent yet; trying again…"] : [];
  }

  edit() {
    this.isEditing = true;
    const box = h("textarea", { "aria-label": "Edit the message", dir: "auto", rows: "1" });
    box.value = this.item.text;
    const close = () => {
      this.isEditing = false;
      form.replaceWith(this.words);
      this.buttons.hidden = false;
      this.node.classList.remove("editing");
    };
    const form = h("form", {
      class: "editor",
      onsubmit: (event) => {
        event.preventDefault();
        const text = box.value.trim();
        close();
        if (text) this.actions.edit(this.item, text);
      },
      onkeydown: (event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          close();
        } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          form.requestSubmit();
        }
      },
    }, box, h("div", {}, h("button", { type: "button", onclick: close }, "Cancel"), h("button", { class: "primary" }, "Send")));
    this.words.replaceWith(form);
    this.buttons.hidden = true;
    this.node.classList.add("editing");
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  }
}

class AnswerView {
  constructor() {
    this.body = h("div", { class: "body" });
    this.bottom = h("div", { class: "foot" });
    this.node = h("article", { class: "ai", "aria-label": "Answer" }, this.body, this.bottom);
    this.parts = [];
  }

  update(item, conversation) {
    this.node.classList.toggle("live", item.isLive);
    this.node.setAttribute("aria-busy", String(item.isLive));
    const key = `${item.version} ${item.parts.filter((part) => part.type === "tool").map((part) => JSON.stringify(conversation.tool(part.id))).join()}`;
    if (key === this.key) return;
    this.key = key;
    item.parts.forEach((part, at) => {
      let view = this.parts[at];
      if (view?.type !== part.type) {
        const fresh = { type: part.type, ...PARTS[part.type]() };
        if (view) view.node.replaceWith(fresh.node);
        else this.body.append(fresh.node);
        this.parts[at] = view = fresh;
      }
      const isOpen = item.isLive && at === item.parts.length - 1;
      view.update(part, isOpen, part.type === "tool" ? conversation.tool(part.id) : null);
    });
    this.parts.splice(item.parts.length).forEach((view) => view.node.remove());
    this.cut(item.isLive ? null : item.cut);
  }

  cut(cause) {
    this.badge?.remove();
    this.badge = cause ? h("div", { class: "cut" }, why(cause)) : null;
    if (this.badge) this.body.after(this.badge);
  }

  foot(about) {
    const key = about && `${about.runId} ${Boolean(about.regenerate)}`;
    if (key === this.footKey) return;
    this.footKey = key;
    this.bottom.replaceChildren(...(about ? [
      copyButton(about.text, "Copy the answer"),
      about.regenerate && iconButton("again", "Regenerate the answer", about.regenerate),
      about.runId && h("a", { class: "bare", href: timelineUrl(about.runId), target: "_blank", rel: "noopener", "aria-label": "Timeline of the run", title: "Timeline of the run" }, icon("line")),
    ].filter(Boolean) : []));
  }
}

const PARTS = {
  text: () => {
    const node = h("div", { class: "text" });
    let shown = null, due = 0;
    return {
      node,
      update: (part, isOpen) => {
        const key = `${isOpen} ${part.text}`;
        if (key === shown || (isOpen && performance.now() < due)) return;
        shown = key;
        const began = performance.now();
        renderMarkdown(node, part.text, isOpen);
        due = performance.now() + 4 * (performance.now() - began) - 8; // a very long answer is drawn less often
      },
    };
  },
  reasoning: () => {
    const words = h("div", { class: "text" }), label = h("span", {}, "Reasoning");
    const node = h("details", { class: "reasoning" }, h("summary", {}, label), words);
    node.addEventListener("toggle", () => draw());
    let now = null;
    const draw = () => now && node.open && renderMarkdown(words, now.text, now.isOpen);
    return {
      node,
      update: (part, isOpen) => {
        now = { text: part.text, isOpen };
        label.textContent = isOpen ? "Reasoning…" : "Reasoning";
        node.classList.toggle("at-work", isOpen);
        draw();
      },
    };
  },
  tool: toolView,
};
