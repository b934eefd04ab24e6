// Shows one thread: every frame of its stream changes what is seen, and nothing else does. Commands are posted; what they do
// is seen when the stream tells of it, here and in every other browser.
"use strict";

const PHASES = ["idle", "turn", "steering", "follow_up", "compaction", "retry", "cancelling", "settling"];
const thread = new URLSearchParams(location.search).get("thread") || "main";
const recorded = thread === "recorded";
const at = (id) => document.getElementById(id);
const base = `/threads/${encodeURIComponent(thread)}`;

let state = {};
let messages = new Map(); // by id: the element of a message
let calls = new Map(); // by id: the row of a tool call
let retryAt = 0;

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// ---- what the stream says ----

const told = {
  MESSAGES_SNAPSHOT({ messages: all }) {
    at("conversation").replaceChildren();
    at("tools").replaceChildren();
    messages = new Map();
    calls = new Map();
    for (const message of all) {
      if (message.role === "tool") answer(message.toolCallId, message.content, Boolean(message.error));
      else open(message.id, message.role).textContent = plain(message.content);
      for (const call of message.toolCalls || []) ask(call.id, call.function.name).args = call.function.arguments;
    }
  },
  STATE_SNAPSHOT({ snapshot }) {
    state = snapshot;
    showState();
  },
  STATE_DELTA({ delta }) {
    for (const { path, value } of delta) state[path.slice(1)] = value;
    showState();
  },
  RUN_STARTED() {
    at("error").hidden = true;
  },
  TEXT_MESSAGE_START: ({ messageId, role }) => open(messageId, role || "assistant"),
  TEXT_MESSAGE_CONTENT: ({ messageId, delta }) => messages.get(messageId)?.append(delta),
  REASONING_MESSAGE_START: ({ messageId }) => open(messageId, "reasoning"),
  REASONING_MESSAGE_CONTENT: ({ messageId, delta }) => messages.get(messageId)?.append(delta),
  TOOL_CALL_START: ({ toolCallId, toolCallName }) => ask(toolCallId, toolCallName),
  TOOL_CALL_ARGS({ toolCallId, delta }) {
    const row = calls.get(toolCallId);
    if (row) row.cells[1].textContent = row.cells[1].title = delta;
  },
  TOOL_CALL_RESULT: ({ toolCallId, content, timestamp }) => answer(toolCallId, plain(content), undefined, timestamp),
  CUSTOM({ name, value, timestamp }) {
    if (name === "kernel.tool.started") started(value.id, timestamp);
    if (name === "kernel.tool.updated") progress(value.id, value.text);
    if (name === "kernel.tool.ended") ended(value.id, value.text, value.error, timestamp);
    if (name === "kernel.retry.scheduled") retryIn(value);
    if (name === "kernel.retry.ended") retryAt = 0;
    if (name === "kernel.compaction.ended") note(`compaction: ${value.outcome}`);
    if (name === "kernel.hook.failed") note(`a hook failed: ${value.hook}`, "failed");
  },
  RUN_FINISHED({ result, outcome }) {
    const status = result?.status || outcome?.type || "success";
    const turns = `${result?.turns ?? 0} turn${result?.turns === 1 ? "" : "s"}`;
    note(`${status}${result?.reason ? ` (${result.reason})` : ""}: ${turns}`, status);
  },
  RUN_ERROR({ message, code }) {
    note(`failed (${code}): ${message}`, "failed");
  },
};

function plain(content) {
  if (typeof content === "string") return content;
  return (content || []).map((part) => part.text || `[${part.type}]`).join("");
}

function open(id, role) {
  const element = make("div", "", { class: "message", "data-role": role });
  messages.set(id, element);
  stay(() => at("conversation").append(element));
  return element;
}

function note(text, status = "") {
  stay(() => at("conversation").append(make("p", text, { class: "end", "data-status": status })));
}

function stay(change) {
  // Who has scrolled up to read is not pulled down.
  const box = at("conversation");
  const below = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  change();
  if (below) box.scrollTop = box.scrollHeight;
}

// ---- tools: the newest on top ----

function ask(id, name) {
  const row = make("tr", "", { "data-state": "asked" });
  row.append(make("td", name), make("td", ""), make("td", ""));
  calls.set(id, row);
  at("tools").prepend(row);
  while (at("tools").rows.length > 100) at("tools").lastChild.remove();
  return row;
}

function open_call(id) {
  // Calls that share an id run one after the other, and the later ones have a number.
  for (const [name, row] of calls) {
    if ((name === id || name.startsWith(`${id}#`)) && ["asked", "running"].includes(row.dataset.state)) return row;
  }
  return undefined;
}

function started(id, timestamp) {
  const row = open_call(id);
  if (!row) return;
  row.dataset.state = "running";
  row.dataset.since = timestamp;
}

function progress(id, text) {
  const row = open_call(id);
  if (row) row.cells[1].textContent = text;
}

function ended(id, text, failed, timestamp) {
  const row = open_call(id);
  if (!row) return;
  row.dataset.state = failed ? "failed" : "done";
  row.cells[1].title = text;
  if (row.dataset.since) row.cells[2].textContent = seconds(timestamp - row.dataset.since);
}

function answer(id, text, failed) {
  const row = calls.get(id);
  if (!row) return;
  row.cells[1].title = text;
  if (["asked", "running"].includes(row.dataset.state)) row.dataset.state = failed ? "failed" : "done";
}

function seconds(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

function retryIn({ delay, error, attempt }) {
  retryAt = Date.now() + delay * 1000;
  note(`request failed (attempt ${attempt}): ${error}`, "failed");
}

// ---- the state ----

function showState() {
  for (const item of at("phases").children) {
    if (item.dataset.phase === state.phase) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  }
  const { input = 0, output = 0 } = state.usage || {};
  at("facts").textContent = `turn ${state.turn} · ${input.toLocaleString("en")} tokens in, ${output.toLocaleString("en")} out`;
  const queue = [...(state.steering || []).map((text) => `now: ${text}`), ...(state.follow_up || []).map((text) => `later: ${text}`)];
  at("queue").replaceChildren(...queue.map((text) => make("li", text)));
  const running = state.phase !== "idle";
  at("cancel").disabled = !running;
  at("later").hidden = !running || recorded;
  at("send").textContent = running ? "Steer" : "Send";
  at("text").placeholder = running ? "Say something to the run" : "Ask something";
}

setInterval(() => {
  const left = (retryAt - Date.now()) / 1000;
  at("retry").hidden = left <= 0;
  at("retry").textContent = `next try in ${left.toFixed(1)} s`;
  for (const row of at("tools").rows) {
    // A recorded trace has times of its own: what is running there has no time that could be told.
    if (row.dataset.state === "running" && !recorded) row.cells[2].textContent = seconds(Date.now() - row.dataset.since);
  }
}, 200);

// ---- commands ----

async function command(name, body) {
  try {
    const answered = await fetch(`${base}/${name}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    const said = await answered.json();
    if (!answered.ok) throw new Error(said.error.message);
    at("error").hidden = true;
    return true;
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
    return false;
  }
}

async function say(name) {
  const text = at("text").value;
  if (!text.trim()) return;
  at("text").value = "";
  if (!(await command(name, { text })) && !at("text").value) at("text").value = text; // nothing that was typed is lost
}

at("say").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("send").disabled) return;
  say(state.phase === "idle" ? "prompt" : "steer");
});
at("later").addEventListener("click", () => say("follow_up"));
at("cancel").addEventListener("click", () => command("cancel", { reason: "cancelled in the browser" }));
at("again").addEventListener("click", () => command("play", { speed: 1 }));

// ---- the stream ----

function connected(said, can) {
  at("connection").textContent = said;
  at("send").disabled = !can;
}

at("phases").append(...PHASES.map((phase) => make("li", phase.replace("_", "-"), { "data-phase": phase })));
if (recorded) {
  for (const id of ["text", "send", "cancel"]) at(id).hidden = true;
  at("again").hidden = at("pictures").hidden = false;
  at("timeline").href = `${base}/timeline.svg`;
  at("path").href = `${base}/path.svg`;
}

// Until the stream has told what the agent does, nobody knows whether to prompt or to steer.
const stream = new EventSource(`${base}/events`);
stream.addEventListener("ready", () => connected(recorded ? "a recorded trace" : "live", true));
stream.onopen = () => state.phase && connected(recorded ? "a recorded trace" : "live", true);
stream.onerror = () => connected("connection lost, trying again", false);
stream.onmessage = ({ data }) => {
  const event = JSON.parse(data);
  told[event.type]?.(event);
};
