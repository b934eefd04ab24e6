// Plays scenario files on the real Pi agent core, and prints what `python -m kernel scenario --dialect pi` prints.
//
//   node pi_runner.mjs FOLDER      FOLDER has `node_modules` with @earendil-works/pi-agent-core
//
// One JSON object a line in: {"scenario": {...}}. One a line out: {"lines": [...], "stuck": false}, or {"refused": "..."}
// for a scenario in which something stands that Pi has no counterpart for. The first line out names what runs here.
//
// Time is no part of it: whoever waits at a gate is let go by a step of the world, and the next step is taken when all
// that the last one led to has happened (every promise of Pi's is a microtask; a macrotask later they are all done). So
// a scenario gives the same lines each time, and one in which nobody can be let go is stuck.
//
// Beside the lines there are marks, for the rules that say where Pi and the kernel differ on purpose: what happened that
// Pi does not tell. A mark has the key "mark"; whoever compares lines takes them out. After an abort Pi still asks the model
// once; the lines of that request and of the turn it opens carry "after_abort": true, and no rule is matched against them,
// since the kernel has no such events at which something could be done.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const folder = join(resolve(process.argv[2]), "node_modules", "@earendil-works", "pi-agent-core");
const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
const { Agent } = await import(pathToFileURL(join(folder, manifest.exports["."].import)).href);

const macrotask = () => new Promise((done) => setImmediate(done));
const textOf = (content) =>
  typeof content === "string" ? content : content.filter((block) => block.type === "text").map((block) => block.text).join("");
const callsOf = (message) => message.content.filter((block) => block.type === "toolCall").map((block) => block.id);
const isCut = (message) => message.role === "assistant" && ["error", "aborted"].includes(message.stopReason);
const user = (text) => ({ role: "user", content: [{ type: "text", text }], timestamp: 0 });
const queued = (text) => ({ ...user(text), queued: true });

// Pi takes what a listener, a tool or a stream throws for a failure of its run, so the first of these is kept beside it.
let unsupported;

class Unsupported extends Error {
  constructor(message) {
    super(message);
    unsupported ??= message;
  }
}

function only(place, given, ...known) {
  for (const key of Object.keys(given)) {
    if (!known.includes(key)) throw new Unsupported(`${place}: Pi has no counterpart of '${key}'`);
  }
}

// ---- the world: gates, and one step after the other ----

class World {
  ready = [];
  silent = false; // a stream that says nothing is being waited for
  gates = new Map();

  gate(name) {
    if (!this.gates.has(name)) this.gates.set(name, { open: false, waiting: [] });
    return this.gates.get(name);
  }

  open(name) {
    const gate = this.gate(name);
    gate.open = true;
    for (const go of gate.waiting.splice(0)) this.ready.push(go);
  }

  // With a signal, an abort ends the wait as well.
  wait(name, signal) {
    const gate = this.gate(name);
    if (gate.open || signal?.aborted) return Promise.resolve();
    return new Promise((done) => {
      gate.waiting.push(done);
      signal?.addEventListener("abort", () => {
        const place = gate.waiting.indexOf(done);
        if (place >= 0) this.ready.push(...gate.waiting.splice(place, 1));
      });
    });
  }

  nap() {
    return new Promise((done) => this.ready.push(done));
  }

  // Until `ended` has settled: true. Where nobody can be let go before that: false.
  async turn(ended) {
    let over = false;
    ended.finally(() => (over = true)).catch(() => {});
    for (;;) {
      await macrotask();
      if (over) return true;
      const step = this.ready.shift();
      if (step === undefined) return false;
      step();
    }
  }
}

// ---- the scripted model: a stream that does what a provider does that heeds the signal, unless its script ignores it ----

const USAGE = {
  input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
};

class Stream {
  constructor(parts, world, signal) {
    Object.assign(this, { parts, world, signal });
    this.message = {
      role: "assistant", content: [], api: "scripted", provider: "scripted", model: "scripted",
      usage: USAGE, stopReason: "stop", timestamp: 0,
    };
    this.settled = new Promise((done) => (this.settle = done));
  }

  result() {
    return this.settled;
  }

  started = false;

  *start() {
    if (!this.started) {
      this.started = true;
      yield { type: "start", partial: this.message };
    }
  }

  // The block at the end when it is of this type, else a new one.
  block(type, empty) {
    const last = this.message.content.at(-1);
    if (last?.type === type) return last;
    const block = { type, ...empty };
    this.message.content.push(block);
    return block;
  }

  end(reason, errorMessage) {
    this.message.stopReason = reason;
    if (errorMessage !== undefined) this.message.errorMessage = errorMessage;
    this.settle(this.message);
    return errorMessage === undefined
      ? { type: "done", reason, message: this.message }
      : { type: "error", reason, error: this.message };
  }

  async *[Symbol.asyncIterator]() {
    const heeds = !this.parts.some((part) => part.wait_ignoring_cancel !== undefined);
    for (const part of this.parts) {
      if (heeds && this.signal.aborted) return yield this.end("aborted", "Request was aborted");
      const [key] = Object.keys(part);
      const value = part[key];
      if (key === "fail") return yield this.end("error", value.message);
      if (key === "end") return yield this.end(value === "tool_use" ? "toolUse" : value);
      if (key === "eof") return await this.silence(new Promise(() => {})); // Pi's streams never settle on a bare end
      yield* this.start();
      yield* await this.take(key, value);
    }
    if (heeds && this.signal.aborted) return yield this.end("aborted", "Request was aborted");
    yield this.end(callsOf(this.message).length ? "toolUse" : "stop");
  }

  async silence(waited) {
    this.world.silent = true;
    await waited;
    this.world.silent = false;
  }

  async take(key, value) {
    const partial = this.message;
    const contentIndex = partial.content.length;
    switch (key) {
      case "text":
        this.block("text", { text: "" }).text += value;
        return [{ type: "text_delta", contentIndex, delta: value, partial }];
      case "reasoning":
        this.block("thinking", { thinking: "" }).thinking += value;
        return [{ type: "thinking_delta", contentIndex, delta: value, partial }];
      case "call": {
        const toolCall = { type: "toolCall", id: value.id, name: value.name, arguments: value.arguments ?? {} };
        partial.content.push(toolCall);
        return [{ type: "toolcall_end", contentIndex, toolCall, partial }];
      }
      case "wait":
        await this.silence(this.world.wait(value, this.signal));
        return [];
      case "wait_ignoring_cancel":
        await this.silence(this.world.wait(value));
        return [];
      case "open":
        this.world.open(value);
        await this.world.nap();
        return [];
      case "usage":
        return [];
      default:
        throw new Unsupported(`model: Pi has no counterpart of '${key}'`);
    }
  }
}

// ---- tools and hooks ----

function toolOf(script, world, mark) {
  only("tools", script, "name", "mode", "parameters", "script");
  const stepsOf = (id) => (Array.isArray(script.script) ? script.script : script.script[id] ?? script.script["*"] ?? []);
  const said = (text, more) => ({ content: [{ type: "text", text }], details: {}, ...more });
  return {
    name: script.name,
    label: script.name,
    description: script.name,
    parameters: script.parameters ?? { type: "object" },
    executionMode: script.mode,
    async execute(id, args, signal, onUpdate) {
      mark("body", { id });
      await world.nap(); // bodies go one after the other, each as far as it comes
      if (signal.aborted) throw new Error("Operation aborted");
      for (const step of stepsOf(id)) {
        if (step.wait !== undefined) {
          await world.wait(step.wait, signal);
          if (signal.aborted) throw new Error("Operation aborted");
        } else if (step.wait_ignoring_cancel !== undefined) await world.wait(step.wait_ignoring_cancel);
        else if (step.open !== undefined) world.open(step.open);
        else if (step.update !== undefined) onUpdate(said(step.update));
        else if (step.late !== undefined) {
          const { after, update } = step.late; // it comes after the tool has returned, also when the gate is open already
          world.nap().then(() => world.wait(after)).then(() => onUpdate(said(update)));
        } else if (step.return !== undefined) return said(step.return, step.terminate ? { terminate: true } : {});
        else if (step.raise !== undefined) throw new Error(step.raise);
        else throw new Unsupported(`tool: Pi has no counterpart of '${Object.keys(step)}'`);
      }
      return said("");
    },
  };
}

function hooksOf(scripts, world, mark) {
  only("hooks", scripts, "before_tool_call", "should_stop_after_turn", "transform_context", "after_tool_result");
  const { before_tool_call: before, should_stop_after_turn: stop, transform_context: transform, after_tool_result: after } = scripts;
  const perform = async (script, signal, hook) => {
    if (script.wait !== undefined) {
      if (!world.gate(script.wait).open) mark("hook waits", { hook });
      await world.wait(script.wait, signal);
    }
    if (script.raise === undefined) return;
    mark("hook raised", { hook });
    throw new Error(script.raise);
  };
  const hooks = {};
  if (before) {
    hooks.beforeToolCall = async ({ toolCall }, signal) => {
      const script = before[toolCall.name];
      if (script === undefined) return undefined;
      await perform(script, signal, "before_tool_call");
      return script.block === undefined ? undefined : { block: true, reason: script.block };
    };
  }
  if (after) hooks.afterToolCall = async (_context, signal) => void (await perform(after, signal, "after_tool_result"));
  if (transform) {
    hooks.transformContext = async (messages, signal) => {
      await perform(transform, signal, "transform_context");
      return messages;
    };
  }
  if (stop !== undefined && stop !== null) {
    hooks.shouldStopAfterTurn = async (_context, signal) => {
      if (typeof stop === "object") await perform(stop, signal, "should_stop_after_turn");
      return stop === true;
    };
  }
  return hooks;
}

// ---- the stage ----

const MODES = { one: "one-at-a-time", all: "all" };

class Stage {
  lines = [];
  requests = [];
  answered = 0;
  turns = 0;
  opened = false; // a turn was opened after an abort
  extra = false; // since a turn began, or a request was made, after an abort

  constructor(scenario) {
    only("scenario", scenario, "name", "why", "config", "tools", "model", "hooks", "subscribers", "when", "drive", "expect", "pi");
    const config = scenario.config ?? {};
    only("config", config, "profile", "steering_mode", "follow_up_mode", "tool_execution", "system_prompt");
    this.scenario = scenario;
    this.world = new World();
    this.matches = (scenario.when ?? []).map(() => 0);
    const mark = (name, details) => this.lines.push({ mark: name, ...details });
    this.agent = new Agent({
      initialState: {
        systemPrompt: config.system_prompt ?? "",
        model: { id: "scripted", api: "scripted", provider: "scripted" },
        tools: (scenario.tools ?? []).map((script) => toolOf(script, this.world, mark)),
      },
      streamFn: (_model, context, options) => this.stream(context, options),
      steeringMode: MODES[config.steering_mode ?? "one"],
      followUpMode: MODES[config.follow_up_mode ?? "one"],
      toolExecution: config.tool_execution ?? "parallel",
      ...hooksOf(scenario.hooks ?? {}, this.world, mark),
    });
    this.agent.subscribe((event) => this.hear(event));
    for (const script of scenario.subscribers ?? []) this.agent.subscribe(this.listener(script));
  }

  stream(context, options) {
    const summary = (message) =>
      message.role === "toolResult" ? `tool:${message.toolCallId}` : `${message.role}:${textOf(message.content)}`;
    const cut = context.messages.flatMap((message, place) => (isCut(message) ? [place] : []));
    this.lines.push({ mark: "request", aborted: options.signal.aborted, cut });
    this.extra ||= options.signal.aborted;
    // A request after an abort takes none of the script's answers: its stream ends before it says anything.
    const response = this.scenario.model?.[this.answered] ?? [{ fail: { message: "script exhausted" } }];
    if (!options.signal.aborted) this.answered += 1;
    this.requests.push(context.messages.map(summary));
    return new Stream(response, this.world, options.signal);
  }

  listener(script) {
    only("subscribers", script, "raise_on", "nth", "message", "slow");
    let heard = 0;
    return (event) => {
      for (const [, native] of this.told(event, false)) {
        if (script.raise_on === undefined || native?.type !== script.raise_on) continue;
        heard += 1;
        if (heard === (script.nth ?? 1)) throw new Error(script.message ?? "the listener failed");
      }
      return script.slow === undefined ? undefined : this.world.wait(script.slow);
    };
  }

  hear(event) {
    const { aborted } = this.agent.signal;
    if (event.type === "turn_start" && aborted && this.turns > 0) {
      this.extra = this.opened = true;
    }
    if (event.type === "agent_end" || (event.type === "turn_end" && !this.opened)) this.extra = false;
    if (event.type === "agent_end") this.opened = false;
    const takes = event.type === "message_start" && event.message.queued;
    if (takes && aborted) this.lines.push({ mark: "taken after an abort" });
    for (const [line, native] of this.told(event, true)) {
      this.lines.push(this.extra ? { ...line, after_abort: true } : line);
      if (native !== null && !this.extra) this.match(native);
    }
  }

  match(native) {
    (this.scenario.when ?? []).forEach((rule, place) => {
      const fits = Object.entries(rule.event).every(([key, value]) => JSON.stringify(native[key]) === JSON.stringify(value));
      if (!fits) return;
      this.matches[place] += 1;
      if (this.matches[place] === (rule.nth ?? 1)) for (const action of rule.do) this.act(action);
    });
  }

  // What is printed of an event, and the native event that rules are matched against: [line, native or null].
  told(event, counts) {
    const line = (type, details) => ({ type, ...details });
    switch (event.type) {
      case "agent_start":
        if (counts) this.turns = 0;
        return [[line("agent_start"), { type: "run.started" }]];
      case "turn_start":
        if (counts) this.turns += 1;
        return [[line("turn_start"), { type: "turn.started", turn: this.turns }]];
      case "message_start":
      case "message_end":
        return [this.messageTold(event)];
      case "message_update": {
        const details = updateOf(event.assistantMessageEvent);
        return details === null ? [] : [[line("message_update", details), { type: "message.updated", ...details }]];
      }
      case "tool_execution_start": {
        const details = { id: event.toolCallId, name: event.toolName };
        return [[line(event.type, details), { type: "tool.started", ...details }]];
      }
      case "tool_execution_update": {
        const details = { id: event.toolCallId, text: textOf(event.partialResult.content) };
        return [[line(event.type, details), { type: "tool.updated", ...details }]];
      }
      case "tool_execution_end": {
        const details = { id: event.toolCallId, text: textOf(event.result.content), error: event.isError };
        return [[line(event.type, details), { type: "tool.ended", ...details }]];
      }
      case "turn_end": {
        const details = { results: event.toolResults.map((result) => result.toolCallId) };
        return [[line(event.type, details), { type: "turn.ended", ...details }]];
      }
      case "agent_end":
        return [[line("agent_end"), { type: "run.finished" }]];
      default:
        throw new Unsupported(`Pi tells of ${event.type}`);
    }
  }

  messageTold({ type, message }) {
    const ends = type === "message_end";
    if (message.role === "user") {
      const details = { role: "user", text: textOf(message.content) };
      return [{ type, ...details }, ends ? { type: "message.accepted", ...details } : null];
    }
    const native = ends ? "message.ended" : "message.started";
    if (message.role === "toolResult") {
      const details = { role: "tool", id: message.toolCallId, text: textOf(message.content), error: message.isError };
      return [{ type, ...details }, { type: native, ...(ends ? details : { role: "tool", id: message.toolCallId }) }];
    }
    const details = { role: "assistant" };
    if (ends) {
      Object.assign(details, { text: textOf(message.content), stop: message.stopReason });
      if (callsOf(message).length) details.calls = callsOf(message);
      if (message.errorMessage) details.error = message.errorMessage;
    }
    return [{ type, ...details }, { type: native, ...details }];
  }

  // ---- what is done ----

  act(action) {
    const [[name, value]] = Object.entries(action);
    const busy = this.agent.signal !== undefined;
    switch (name) {
      case "steer":
        return this.agent.steer(queued(value));
      case "follow_up":
        return this.agent.followUp(queued(value));
      case "cancel":
        if (busy) this.lines.push({ mark: "abort" });
        return this.agent.abort();
      case "open":
        return this.world.open(value);
      case "reset":
        try {
          return this.agent.reset();
        } catch {
          return this.lines.push({ refused: "reset" });
        }
      case "prompt":
        if (!busy) throw new Unsupported("a prompt is an action only while a run is going");
        this.lines.push({ refused: "prompt" });
        return this.agent.prompt(value).then(
          () => this.lines.push({ mark: "a busy agent took a prompt" }),
          () => {},
        );
      default:
        throw new Unsupported(`Pi has no counterpart of '${name}'`);
    }
  }

  async drive(step) {
    const [[name, value]] = Object.entries(step);
    if (name === "wait_for_idle") return this.agent.waitForIdle();
    if (name === "prompt") return this.agent.prompt(value).catch((error) => this.rejected(name, error));
    if (name !== "continue") return this.act(step);
    const tail = this.agent.state.messages.at(-1);
    const before = this.lines.length;
    if (tail && isCut(tail)) this.lines.push({ mark: "continue after a cut message" });
    const told = () => this.lines.slice(before).some((line) => line.type !== undefined);
    return this.agent.continue().catch((error) => (told() ? this.rejected(name, error) : this.lines.push({ refused: name })));
  }

  rejected(name, error) {
    this.lines.push({ mark: `${name} rejected: ${error.message}` });
  }

  async perform() {
    for (const step of this.scenario.drive ?? []) {
      const driven = this.drive(step);
      if (await this.world.turn(driven)) {
        await driven; // what it threw is thrown here
        continue;
      }
      if (this.world.silent && !this.agent.signal.aborted) this.lines.push({ mark: "a silent stream" });
      return false;
    }
    const silent = ({ role, stopReason, content }) =>
      role === "assistant" && stopReason === "aborted" && !content.some((block) => block.text || block.thinking);
    this.lines.push({ mark: "unsaid", places: this.agent.state.messages.flatMap((one, place) => (silent(one) ? [place] : [])) });
    this.lines.push(this.final());
    return true;
  }

  final() {
    const { state } = this.agent;
    const said = (message) => {
      const text = textOf(message.content);
      if (message.role === "toolResult") return { role: "tool", id: message.toolCallId, text, error: message.isError };
      if (message.role === "user") return { role: "user", text };
      return { role: "assistant", text, stop: message.stopReason, calls: callsOf(message) };
    };
    return {
      type: "final",
      running: state.isStreaming,
      pending: [...state.pendingToolCalls],
      queued: this.agent.hasQueuedMessages(),
      messages: state.messages.map(said),
      requests: this.requests,
    };
  }
}

function updateOf(event) {
  if (event.type === "text_delta") return event.delta === "" ? null : { delta: event.delta };
  if (event.type === "thinking_delta") return event.delta === "" ? null : { reasoning: event.delta };
  if (event.type === "toolcall_end") return { call: event.toolCall.id };
  return null;
}

// ---- the process ----

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

async function play(scenario) {
  unsupported = undefined;
  try {
    const stage = new Stage(scenario);
    const ended = await stage.perform();
    return unsupported === undefined ? { lines: stage.lines, stuck: !ended } : { refused: unsupported };
  } catch (error) {
    return { refused: unsupported ?? String(error?.stack ?? error) };
  }
}

let unexpected;
process.on("unhandledRejection", (error) => (unexpected = String(error?.stack ?? error)));

say({ node: process.version, package: manifest.name, version: manifest.version });
for await (const line of createInterface({ input: process.stdin })) {
  unexpected = undefined;
  const outcome = await play(JSON.parse(line).scenario);
  await macrotask();
  say(unexpected === undefined ? outcome : { ...outcome, unexpected });
}
