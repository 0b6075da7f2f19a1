// The list of conversations: titles, search, delete with a confirmation.

import * as api from "./api.js";
import { h, iconButton } from "./dom.js";

export class ThreadList {
  constructor({ list, search, none, confirm, onDelete }) {
    Object.assign(this, { list, search, none, confirm, onDelete });
    this.threads = [];
    this.current = null;
    this.running = 0;
    search.addEventListener("input", () => this.draw());
  }

  /** Ask the server again. A failure leaves the list as it is: the stream of the conversation reports it. */
  async refresh() {
    const mine = (this.running += 1);
    try {
      const found = await api.threads();
      if (mine !== this.running) return;
      this.threads = found;
      this.draw();
    } catch {
      // see above
    }
  }

  titleOf(threadId) {
    return this.threads.find((one) => one.thread_id === threadId)?.title || null;
  }

  select(threadId) {
    this.current = threadId;
    this.draw();
  }

  draw() {
    const words = this.search.value.trim().toLocaleLowerCase().split(/\s+/).filter(Boolean);
    const fits = (thread) => words.every((word) => titled(thread).toLocaleLowerCase().includes(word));
    const found = this.threads.filter(fits);
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.thread : null;
    this.list.replaceChildren(...found.map((thread) => this.row(thread)));
    if (focused) [...this.list.children].find((row) => row.dataset.thread === focused)?.querySelector("a").focus();
    this.none.hidden = found.length > 0;
    this.none.textContent = this.threads.length ? "Nothing found." : "No conversations yet.";
  }

  row(thread) {
    const title = titled(thread), isCurrent = thread.thread_id === this.current;
    const isRunning = thread.status === "running", isPaused = thread.status === "paused";
    const dot = isRunning || isPaused ? h("span", { class: `dot ${thread.status}`, role: "img", "aria-label": isRunning ? "running" : "waits for you" }) : null;
    return h("li", { class: isCurrent ? "current" : null, "data-thread": thread.thread_id },
      h("a", { href: `#${encodeURIComponent(thread.thread_id)}`, "aria-current": isCurrent ? "page" : null, dir: "auto", title }, dot, title),
      iconButton("trash", `Delete: ${title}`, () => this.remove(thread, title)));
  }

  remove(thread, title) {
    this.confirm.querySelector("p").textContent = `Delete “${title}”? Its messages and its runs are deleted for good.`;
    this.confirm.returnValue = "";
    this.confirm.addEventListener("close", async () => {
      if (this.confirm.returnValue !== "yes") return;
      const problem = await this.onDelete(thread.thread_id);
      if (problem) this.none.replaceChildren(problem);
      this.none.hidden = !problem;
      await this.refresh();
    }, { once: true });
    this.confirm.showModal();
  }
}

const titled = (thread) => thread.title || "Untitled";
