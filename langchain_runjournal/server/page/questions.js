// What a paused run asks: approve or reject what LangChain's HumanInTheLoopMiddleware asks, or answer what a graph asks.

import { h } from "./dom.js";
import { pretty } from "./tools.js";

/** Return the form for all questions of a run. `answer(value)` resumes the run with them. */
export function questionView(asked, answer) {
  const count = asked.interrupts.length, given = new Map();
  const node = h("section", { class: "questions", "aria-label": "The agent waits for you" });
  const note = h("div", { class: "note", role: "status" });
  const decide = async (interrupt, value) => {
    given.set(interrupt.id, value);
    if (given.size < count) {
      note.textContent = `${given.size} of ${count} answered`;
      return;
    }
    node.querySelectorAll("button, textarea").forEach((one) => (one.disabled = true));
    note.textContent = "Sending…";
    const resume = count === 1 ? value : Object.fromEntries(given);
    const problem = await answer(asked.runId, resume);
    if (!problem) return;
    node.querySelectorAll("button, textarea").forEach((one) => (one.disabled = false));
    note.textContent = problem;
  };
  for (const interrupt of asked.interrupts) node.append(one(interrupt, (value) => decide(interrupt, value)));
  node.append(note);
  return node;
}

function one(interrupt, decide) {
  const value = interrupt.value;
  return Array.isArray(value?.action_requests) ? approvals(value, decide) : free(value, decide);
}

/** The request of HumanInTheLoopMiddleware: a decision for each action, in their order. */
function approvals(value, decide) {
  const decisions = Array(value.action_requests.length).fill(null);
  const rows = value.action_requests.map((action, at) => {
    const config = value.review_configs?.find((one) => one.action_name === action.name) ?? value.review_configs?.[at];
    const allowed = config?.allowed_decisions ?? ["approve", "reject"];
    const take = (decision, row) => {
      decisions[at] = decision;
      row.classList.add("decided");
      if (decisions.every(Boolean)) decide({ decisions });
    };
    return approval(action, allowed, take);
  });
  return h("div", {}, ...rows);
}

function approval(action, allowed, take) {
  const box = h("textarea", { rows: "1", placeholder: "Why not (for the agent)", "aria-label": "Reason for a rejection", dir: "auto" });
  const row = h("div", { class: "question" },
    h("p", { dir: "auto" }, h("b", {}, action.name ?? "Action"), action.description ? ` ${action.description}` : ""),
    fields(action.args ?? action.arguments), box,
    h("div", { class: "choices" },
      allowed.includes("approve") && button("Approve", "primary", () => take({ type: "approve" }, row)),
      allowed.includes("reject") && button("Reject", "danger", () => take({ type: "reject", ...(box.value.trim() ? { message: box.value.trim() } : {}) }, row)),
      allowed.includes("respond") && button("Answer instead", "", () => box.value.trim() && take({ type: "respond", message: box.value.trim() }, row))));
  return row;
}

/** Any other question of a graph: its words, or the whole value; yes, no, or an answer in words. */
function free(value, decide) {
  const words = typeof value === "string" ? value : ["question", "message", "text", "prompt"].map((key) => value?.[key]).find((found) => typeof found === "string");
  const rest = typeof value === "string" || value === null || value === undefined ? null : withoutWords(value, words);
  const box = h("textarea", { rows: "1", placeholder: "Answer in words", "aria-label": "Answer in words", dir: "auto" });
  const reply = () => box.value.trim() && decide(box.value.trim());
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    reply();
  });
  return h("div", { class: "question" }, h("p", { dir: "auto" }, words ?? "The agent waits for an answer."),
    fields(rest), box,
    h("div", { class: "choices" }, button("Approve", "primary", () => decide(true)), button("Reject", "danger", () => decide(false)), button("Answer", "", reply)));
}

function withoutWords(value, words) {
  if (typeof value !== "object" || Array.isArray(value)) return value;
  const rest = Object.fromEntries(Object.entries(value).filter(([, one]) => one !== words));
  return Object.keys(rest).length ? rest : null;
}

/** Return the members of a value under their names; any other value as it is. */
function fields(value) {
  if (value === null || value === undefined) return null;
  if (typeof value !== "object" || Array.isArray(value)) return h("pre", { tabindex: "0", dir: "auto" }, pretty(value));
  const rows = Object.entries(value).flatMap(([name, one]) => [h("dt", { dir: "auto" }, name), h("dd", { dir: "auto", tabindex: "0" }, pretty(one))]);
  return h("dl", {}, ...rows);
}

function button(label, kind, onclick) {
  return h("button", { type: "button", class: kind || null, onclick }, label);
}
