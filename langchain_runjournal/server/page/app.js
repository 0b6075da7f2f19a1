// The page: which conversation is shown, the box to write in, the list beside it.

import * as api from "./api.js";
import { h, icon, uuid } from "./dom.js";
import { MessageList } from "./messages.js";
import { Session } from "./session.js";
import { ThreadList } from "./threads.js";

const el = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 50rem)");
const tabs = new BroadcastChannel("runjournal");
const drafts = new Map();
let session = null, isAtEnd = true, waiting = null, connection = "connecting";

// --- the conversation that is shown

const actions = {
  send: (text) => session.send(text),
  edit: (item, text) => session.send(text, { before: item.id }),
  regenerate: (item) => session.send(item.content ?? item.text, { before: item.id }),
  answer: (runId, value) => session.answer(runId, value),
  takeBack: (item) => {
    el("text").value = item.text;
    session.forget(item);
    grow();
    el("text").focus();
  },
};
const list = new MessageList(el("said"), actions);
const threads = new ThreadList({
  list: el("threads"), search: el("search"), none: el("no-threads"), confirm: el("confirm"),
  onDelete: async (threadId) => {
    try {
      await api.remove(threadId);
    } catch (error) {
      if (error.status !== 404 && error.status !== 410) return error.message;
    }
    tabs.postMessage({ deleted: threadId });
    if (threadId === session.threadId) fresh();
    return null;
  },
});

function show(threadId, isNew = false) {
  if (session?.threadId === threadId) return;
  if (session) {
    drafts.set(session.threadId, el("text").value);
    session.close();
  }
  list.clear();
  waiting = null;
  isAtEnd = true;
  connection = "connecting";
  const mine = new Session(threadId, {
    changed: () => session === mine && redraw(),
    connection: (name, items) => session === mine && connected(name, items),
    busy: (entry) => session === mine && ask(entry),
    threads: () => changedThreads(),
    said: (fold) => session === mine && announce(fold),
  }, isNew);
  session = mine;
  el("text").value = drafts.get(threadId) ?? "";
  grow();
  threads.select(threadId);
  redraw();
  mine.open();
}

function fresh() {
  history.pushState(null, "", location.pathname + location.search);
  show(uuid(), true);
  toggleSide(false);
  el("text").focus();
}

function route() {
  let named = "";
  try {
    named = decodeURIComponent(location.hash.slice(1));
  } catch {
    // not a name: a new conversation
  }
  show(named || uuid(), !named);
  toggleSide(false);
}

async function listAgain() {
  await threads.refresh();
  if (threads.titleOf(session.threadId) !== null) session.resume(); // it may have begun elsewhere
  redraw();
}

function changedThreads() {
  listAgain();
  tabs.postMessage({ threads: true });
}

// --- drawing, at most once in a frame

let isDue = false, timer = 0;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDue = false;
  const { conversation } = session, live = conversation.live, items = conversation.items();
  list.draw(conversation);
  if (isAtEnd) el("scroll").scrollTop = el("scroll").scrollHeight;
  el("to-end").hidden = isAtEnd;
  el("empty").hidden = !conversation.isLoaded || items.length > 0;
  const isSending = conversation.pending.some((one) => one.pendingState === "sending" || one.pendingState === "sent");
  const canStop = Boolean(live) || isSending, isStopping = Boolean(live?.isStopping || session.isStopping);
  el("stop").hidden = !canStop;
  el("stop").disabled = isStopping;
  el("send").hidden = canStop && !el("text").value.trim();
  if (!live && !isSending) ask(null);
  const title = threads.titleOf(session.threadId) ?? firstWords(items);
  el("title").textContent = title || "New chat";
  document.title = title || "Chat";
  status(live, isStopping, conversation);
  if (items.length && location.hash !== `#${encodeURIComponent(session.threadId)}`) {
    history.replaceState(null, "", `#${encodeURIComponent(session.threadId)}`);
  }
  clearTimeout(timer);
  if (live) timer = setTimeout(redraw, 250); // what was left out of a long answer
}

function firstWords(items) {
  const words = items.find((one) => one.kind === "human")?.text.trim().split(/\s+/).slice(0, 8).join(" ") ?? "";
  return words.length > 60 ? `${words.slice(0, 59)}…` : words;
}

function status(live, isStopping, conversation) {
  const words = connection === "waiting" ? "Waiting for the server."
    : isStopping && live ? "Stopping…" : live ? "Answering. Escape stops it."
    : conversation.question() ? "The agent waits for you." : conversation.pending.some((one) => one.pendingState === "waiting")
    ? "Waiting for the running answer." : narrow.matches ? "" : "Enter sends, Shift+Enter begins a new line.";
  if (el("state").textContent !== words) el("state").textContent = words;
}

function announce(fold) {
  const said = fold.visible().filter((one) => one.kind === "ai").flatMap((one) => one.parts)
    .filter((part) => part.type === "text").map((part) => part.text).join("\n");
  const how = fold.status === "paused" ? "The agent waits for you." : fold.status === "interrupted" ? "Stopped." : fold.status === "failed" ? "The answer failed." : "";
  el("spoken").textContent = `${said.replace(/[*_`#|]+/g, "").slice(0, 4000)} ${how}`.trim();
}

function connected(name) {
  connection = name;
  const words = {
    waiting: "Connection lost. What was said is kept; reconnecting…",
    refused: "The server does not know you. Open the address that it has printed, or log in again.",
    gone: session.conversation.items().length ? "This conversation was deleted." : "",
  }[name] ?? "";
  el("banner").hidden = !words;
  if (el("banner").textContent !== words) el("banner").textContent = words;
  redraw();
}

// --- writing

function ask(entry) {
  if (!entry === !waiting) return;
  waiting = entry;
  el("busy").hidden = !entry;
  if (entry) {
    if (!el("text").value) el("text").value = entry.text;
    grow();
    el("busy").querySelector("button").focus();
  } else if (document.activeElement === document.body || el("busy").contains(document.activeElement)) {
    el("text").focus();
  }
}

el("busy").addEventListener("click", (event) => {
  const how = event.target.closest("button")?.value, entry = waiting;
  if (how === undefined || !entry) return;
  ask(null);
  el("text").focus();
  if (how) submit(how, entry.before);
});

function submit(ifBusy = "reject", before = null) {
  const text = el("text").value.trim();
  if (!text) return;
  const live = session.conversation.live;
  // A run that is being stopped is about to end: what is sent now comes next.
  if (ifBusy === "reject" && live && (live.isStopping || session.isStopping)) ifBusy = "wait";
  if (ifBusy === "reject" && live) {
    ask({ text, before });
    return;
  }
  ask(null);
  el("text").value = "";
  grow();
  isAtEnd = true;
  session.send(text, { ifBusy, before });
}

el("form").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
el("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
el("text").addEventListener("input", () => {
  grow();
  redraw();
});
el("stop").addEventListener("click", () => {
  session.stop();
  el("text").focus();
});

function grow() {
  const box = el("text");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

// --- the rest of the page

function toggleSide(isOpen) {
  document.body.classList.toggle("side-open", isOpen);
  el("open-side").setAttribute("aria-expanded", String(isOpen));
  el("shade").hidden = !isOpen;
  el("side").inert = narrow.matches && !isOpen;
  el("room").inert = narrow.matches && isOpen;
  if (isOpen) el("new").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || el("confirm").open) return;
  if (document.body.classList.contains("side-open")) {
    toggleSide(false);
    el("open-side").focus();
  } else if (!el("busy").hidden) {
    ask(null);
  } else if (!el("stop").hidden && !el("stop").disabled) {
    session.stop();
  }
});
el("scroll").addEventListener("scroll", () => {
  const { scrollTop, scrollHeight, clientHeight } = el("scroll");
  isAtEnd = scrollHeight - scrollTop - clientHeight < 60;
  el("to-end").hidden = isAtEnd;
}, { passive: true });
el("to-end").addEventListener("click", () => {
  isAtEnd = true;
  redraw();
});
el("new").prepend(icon("plus"));
el("new").addEventListener("click", fresh);
el("open-side").append(icon("menu"));
el("open-side").addEventListener("click", () => toggleSide(true));
el("close-side").append(icon("close"));
el("close-side").addEventListener("click", () => toggleSide(false));
el("shade").addEventListener("click", () => toggleSide(false));
el("stop").append(icon("stop"));
el("send").append(icon("send"));
el("to-end").append(icon("down"));
narrow.addEventListener("change", () => toggleSide(false));

const THEME = { auto: ["auto", "Colours: as the system"], light: ["sun", "Colours: light"], dark: ["moon", "Colours: dark"] };
function showTheme(name) {
  const [image, label] = THEME[name];
  el("theme").replaceChildren(icon(image));
  el("theme").setAttribute("aria-label", label);
  el("theme").title = label;
}
el("theme").addEventListener("click", () => showTheme(globalThis.theme(true)));
showTheme(globalThis.theme());

tabs.onmessage = ({ data }) => {
  listAgain();
  if (data.deleted === session.threadId) fresh();
  else session.resume();
};
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    session.pause();
    return;
  }
  session.resume();
  listAgain();
});
addEventListener("online", () => session.stream?.hurry());
addEventListener("hashchange", route);
addEventListener("popstate", route);
addEventListener("pagehide", () => session.pause());
addEventListener("pageshow", () => session?.resume());
setInterval(() => !document.hidden && listAgain(), 15_000);

async function settings() {
  const found = await fetch(new URL("page/settings.json", document.baseURI)).then((answer) => answer.json()).catch(() => ({}));
  el("hint").textContent = found.hint ?? "";
  el("ideas").replaceChildren(...(found.ideas ?? []).map((idea) => h("button", { type: "button", onclick: () => session.send(idea) }, idea)));
}

settings();
route();
listAgain();
