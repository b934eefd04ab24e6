// Pi's agent core on Node, on the workloads of `tests.benchmarks`, beside a bare loop in the same language.
//
//   node --expose-gc pi.mjs FOLDER ROUNDS [SCALE]      FOLDER has `node_modules` with @earendil-works/pi-agent-core
//
// Prints a row of JSON a line, as child.py does. CPU time is that of the process (user and system, all threads), so what the
// garbage collector and the compiler do beside it counts. Everything has run often enough before to be compiled.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, roundsText, scaleText] = process.argv;
const ROUNDS = Number(roundsText), SCALE = Number(scaleText ?? 1);
const size = (full) => Math.max(2, Math.floor(full * SCALE));
const home = join(resolve(folder), "node_modules", "@earendil-works");
const load = async (name) => {
  const manifest = JSON.parse(readFileSync(join(home, name, "package.json"), "utf8"));
  return import(pathToFileURL(join(home, name, manifest.exports["."].import)).href);
};
const { Agent } = await load("pi-agent-core");
const { createAssistantMessageEventStream } = await load("pi-ai");

const tick = () => new Promise(setImmediate);
const cpu = () => { const used = process.cpuUsage(); return used.user + used.system; };
const middle = (values) => { const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1; return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2; };
const spread = (values) => ({ median: middle(values), low: Math.min(...values), high: Math.max(...values) });
const expect = (actual, expected, what) => { if (JSON.stringify(actual) !== JSON.stringify(expected)) throw new Error(`${what}: ${JSON.stringify(actual).slice(0, 200)}, expected ${JSON.stringify(expected).slice(0, 200)}`); };

// ---- plans, the tool, and what the consumer sees ----

const turn = (texts, calls = [], pace = "instant") => ({ texts, calls, pace });
const textPlan = (deltas, pace) => [turn(Array.from({ length: deltas }, (_, n) => `tok${String(n).padStart(4, "0")} `), [], pace)];
const LAST = turn(["all ", "done"]);
const toolPlan = (turns) => [...Array.from({ length: turns }, (_, n) => turn([], [{ id: `call_${n}`, text: '{"number": 7}' }])), LAST];
const parallelPlan = (calls) => [turn([], Array.from({ length: calls }, (_, n) => ({ id: `call_${n}`, text: `{"number": ${n}}` }))), LAST];

const tally = { calls: 0, times: null };
async function echo() {
  tally.calls++;
  if (tally.times) tally.times.push(cpu());
  return "ok";
}

class Seen {
  events = 0; deltas = 0; characters = 0; firstText = 0;
  text(delta) {
    if (!this.deltas) this.firstText = cpu();
    this.deltas++;
    this.characters += delta.length;
  }
}

// ---- the bare loop ----

const floor = {
  agent: (plan) => ({ turns: plan[Symbol.iterator](), messages: [], stop: new AbortController() }),
  async *response(agent, { texts, calls, pace }) {
    for (const text of texts) {
      if (pace === "yielding") await tick();
      yield ["text", text];
    }
    for (const call of calls) yield ["call", call];
    if (pace === "stuck") await new Promise((_, reject) => agent.stop.signal.addEventListener("abort", () => reject(new Error("aborted")), { once: true }));
  },
  async *loop(agent) {
    agent.messages.push({ role: "user", content: "go" });
    while (true) {
      const texts = [], calls = [];
      for await (const event of this.response(agent, agent.turns.next().value)) {
        (event[0] === "text" ? texts : calls).push(event[1]);
        yield event;
      }
      agent.messages.push({ role: "assistant", content: texts.join(""), calls });
      if (!calls.length) return yield ["end", null];
      const results = await Promise.all(calls.map((call) => echo(JSON.parse(call.text))));
      for (const [place, result] of results.entries()) {
        agent.messages.push({ role: "tool", id: calls[place].id, content: result });
        yield ["result", result];
      }
    }
  },
  async run(agent, seen) {
    for await (const event of this.loop(agent)) {
      seen.events++;
      if (event[0] === "text") seen.text(event[1]);
    }
  },
  stop: (agent) => agent.stop.abort(),
  counted({ messages }) {
    return [messages.filter((m) => m.role === "user").length, messages.reduce((sum, m) => sum + (m.calls?.length ?? 0), 0),
      messages.filter((m) => m.role === "tool" && m.content === "ok").length, messages.at(-1).content];
  },
};

// ---- Pi ----

const USAGE = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
const MODEL = { id: "fake", name: "fake", api: "fake", provider: "fake", baseUrl: "", reasoning: false, input: ["text"], cost: USAGE.cost, contextWindow: 1e6, maxTokens: 1e4 };
const ECHO = {
  name: "echo", label: "echo", description: "Echo a number.",
  parameters: { type: "object", properties: { number: { type: "integer" } }, required: ["number"] },
  execute: async (_, args) => ({ content: [{ type: "text", text: await echo(args) }], details: {} }),
};

function streamed({ texts, calls, pace }, signal) {
  const stream = createAssistantMessageEventStream();
  const partial = { role: "assistant", content: [], api: "fake", provider: "fake", model: "fake", usage: USAGE, stopReason: "stop", timestamp: 0 };
  const produce = async () => {
    stream.push({ type: "start", partial });
    for (const [contentIndex, call] of calls.entries()) {
      const block = { type: "toolCall", id: call.id, name: "echo", arguments: {} };
      partial.content.push(block);
      stream.push({ type: "toolcall_start", contentIndex, partial });
      block.arguments = JSON.parse(call.text);
      stream.push({ type: "toolcall_delta", contentIndex, delta: call.text, partial });
      stream.push({ type: "toolcall_end", contentIndex, toolCall: block, partial });
    }
    if (calls.length) partial.stopReason = "toolUse";
    if (texts.length) {
      const block = { type: "text", text: "" };
      partial.content.push(block);
      stream.push({ type: "text_start", contentIndex: 0, partial });
      for (const delta of texts) {
        if (pace === "yielding") await tick();
        block.text += delta;
        stream.push({ type: "text_delta", contentIndex: 0, delta, partial });
      }
      if (pace === "stuck") {
        await new Promise((done) => signal.addEventListener("abort", done, { once: true }));
        Object.assign(partial, { stopReason: "aborted", errorMessage: "aborted" });
        stream.push({ type: "error", reason: "aborted", error: partial });
        return stream.end();
      }
      stream.push({ type: "text_end", contentIndex: 0, content: block.text, partial });
    }
    stream.push({ type: "done", reason: partial.stopReason, message: partial });
    stream.end();
  };
  produce();
  return stream;
}

const pi = {
  agent(plan) {
    const turns = plan[Symbol.iterator]();
    return new Agent({ initialState: { systemPrompt: "", model: MODEL, tools: [ECHO] }, streamFn: (_model, _context, options) => streamed(turns.next().value, options?.signal) });
  },
  async run(agent, seen) {
    const leave = agent.subscribe((event) => {
      seen.events++;
      if (event.type === "message_update" && event.assistantMessageEvent.type === "text_delta") seen.text(event.assistantMessageEvent.delta);
    });
    await agent.prompt("go");
    leave();
  },
  stop: (agent) => agent.abort(),
  counted(agent) {
    const { messages } = agent.state, blocks = messages.flatMap((m) => (m.role === "assistant" ? m.content : []));
    return [messages.filter((m) => m.role === "user").length, blocks.filter((b) => b.type === "toolCall").length,
      messages.filter((m) => m.role === "toolResult" && !m.isError && m.content[0].text === "ok").length, blocks.at(-1).text];
  },
};

// ---- the workloads ----

async function took(work) {
  const start = cpu();
  await work();
  return cpu() - start;
}

const workloads = {
  text: (side, pace = "instant") => {
    const deltas = size(2000);
    return {
      labels: [pace === "instant" ? `text turn of ${deltas.toLocaleString("en")} deltas, a delta` : "the same, yielding before each, a delta"], unit: "µs", pairs: 7,
      async run() {
        const plan = textPlan(deltas, pace), agent = side.agent(plan), seen = new Seen(), text = plan[0].texts.join("");
        const all = await took(() => side.run(agent, seen));
        expect(side.counted(agent), [1, 0, 0, text], "the transcript");
        expect([seen.deltas, seen.characters], [deltas, text.length], "deltas and characters seen");
        return [all / deltas];
      },
    };
  },
  yielding: (side) => workloads.text(side, "yielding"),
  tools: (side) => ({
    labels: [`${size(100)} tool turns, a turn`], unit: "µs", pairs: 7,
    async run() {
      const turns = size(100), agent = side.agent(toolPlan(turns)), before = tally.calls;
      const all = await took(() => side.run(agent, new Seen()));
      expect([tally.calls - before, side.counted(agent)], [turns, [1, turns, turns, "all done"]], "the transcript");
      return [all / turns];
    },
  }),
  parallel: (side) => ({
    labels: [`${size(32)} parallel calls, a call`], unit: "µs", pairs: 3,
    async run() {
      const calls = size(32), agents = Array.from({ length: size(20) }, () => side.agent(parallelPlan(calls)));
      const all = await took(async () => { for (const agent of agents) await side.run(agent, new Seen()); });
      for (const agent of agents) expect(side.counted(agent), [1, calls, calls, "all done"], "the transcript");
      return [all / calls / agents.length];
    },
  }),
  growth: (side) => {
    const turns = size(400), sample = size(50);
    return {
      labels: [`turn 1–${sample} of ${turns}`, `turn ${turns - sample}–${turns} of ${turns}`], unit: "µs", pairs: 3,
      async run() {
        const agent = side.agent(toolPlan(turns));
        tally.times = [];
        await side.run(agent, new Seen());
        const { times } = tally;
        tally.times = null;
        expect([times.length, side.counted(agent)], [turns, [1, turns, turns, "all done"]], "the transcript");
        const each = times.slice(1).map((time, place) => time - times[place]), mean = (part) => part.reduce((sum, value) => sum + value, 0) / part.length;
        return [mean(each.slice(0, sample)), mean(each.slice(-sample))]; // whole microseconds are too coarse for a median here
      },
    };
  },
  agents: (side) => ({
    labels: [`${size(2000).toLocaleString("en")} agents at once, an agent`], unit: "µs", pairs: 1,
    async run() {
      const plan = textPlan(4), agents = [];
      const one = async () => { const agent = side.agent(plan); agents.push(agent); await side.run(agent, new Seen()); };
      const all = await took(() => Promise.all(Array.from({ length: size(2000) }, one)));
      for (const agent of agents) expect(side.counted(agent), [1, 0, 0, plan[0].texts.join("")], "the transcript");
      return [all / agents.length];
    },
  }),
  first: (side) => ({
    labels: ["prompt to first text"], unit: "µs", pairs: 1,
    async run() {
      const each = [];
      for (let n = 0; n < size(200); n++) {
        const agent = side.agent(textPlan(2, "yielding")), seen = new Seen(), start = cpu();
        await side.run(agent, seen);
        each.push(seen.firstText - start);
      }
      return [middle(each)];
    },
  }),
  cancel: (side) => ({
    labels: ["cancel to end of run"], unit: "µs", pairs: 1,
    async run() {
      const each = [];
      for (let n = 0; n < size(200); n++) {
        const agent = side.agent(textPlan(1, "stuck")), seen = new Seen(), running = side.run(agent, seen).catch(() => {});
        while (!seen.deltas) await tick();
        each.push(await took(() => { side.stop(agent); return running; }));
        expect(side.counted(agent)[0], 1, "the transcript");
      }
      return [middle(each)];
    },
  }),
  construction: (side) => ({
    labels: ["making an agent with a tool"], unit: "µs", pairs: 3,
    async run() {
      const plan = textPlan(1), agents = [];
      const all = await took(async () => { for (let n = 0; n < size(300); n++) agents.push(side.agent(plan)); });
      return [all / agents.length];
    },
  }),
};

for (const workload of Object.values(workloads)) {
  const bare = workload(floor), mine = workload(pi);
  for (let n = 0; n < (SCALE < 1 ? 1 : 6); n++) { await bare.run(); await mine.run(); }
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    const pairs = [];
    for (let pair = 0; pair < mine.pairs; pair++) {
      gc();
      const first = await bare.run();
      gc();
      pairs.push([first, await mine.run()]);
    }
    rounds.push(pairs);
  }
  for (const [place, label] of mine.labels.entries()) {
    const over = (figure) => spread(rounds.map((pairs) => middle(pairs.map(([first, second]) => figure(first[place], second[place])))));
    console.log(JSON.stringify({ label, unit: mine.unit, kernel: over((_, second) => second), floor: over((first) => first), ratio: over((first, second) => second / first) }));
  }
}

{
  const plan = textPlan(4), count = size(2000), agents = [];
  gc(); gc();
  const before = process.memoryUsage().heapUsed;
  for (let n = 0; n < count; n++) { const agent = pi.agent(plan); await pi.run(agent, new Seen()); agents.push(agent); }
  gc(); gc();
  console.log(JSON.stringify({ label: "an idle agent, live", unit: "kB", kernel: spread([(process.memoryUsage().heapUsed - before) / 1024 / agents.length]), floor: null, ratio: null }));
}
