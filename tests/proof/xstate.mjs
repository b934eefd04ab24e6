// Walks over machine configs with XState 5: reads one request from standard input, writes one answer to standard output.
// Request: {config: the text of an export, walks: [[{trigger, yes}]]}; answer: {version, told: [[{state, did, went, crossed}]]}.
// The one argument is a folder whose node_modules has xstate. Without a request, the answer is the version alone.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const require = createRequire(join(resolve(process.argv[2]), "any.js"));
const { and, createActor, createMachine, not } = require("xstate");
const { version } = require("xstate/package.json");

const combined = (_, it) =>
  it?.type === "and" ? and(it.params.guards) : it?.type === "not" ? not(it.params.guard) : it;

function machine(text, log, asked) {
  const config = JSON.parse(text, combined);
  const names = { guards: {}, actions: {} };
  const visit = (node, path) => {
    for (const transition of Object.values(node.on ?? {}).flat()) {
      for (const action of transition.actions ?? []) names.actions[action] = () => log.did.push(action);
      for (const guard of leaves(transition.guard)) names.guards[guard] = () => asked.yes.includes(guard);
    }
    for (const [name, inner] of Object.entries(node.states ?? {})) {
      const place = [...path, name].join(".");
      inner.entry = () => log.crossed.push(`+${place}`);
      inner.exit = () => log.crossed.push(`-${place}`);
      visit(inner, [...path, name]);
    }
  };
  visit(config, []);
  return createMachine(config, names);
}

const leaves = (guard) =>
  guard === undefined ? [] : typeof guard === "string" ? [guard] : guard.guards.flatMap(leaves);

const path = (value) =>
  typeof value === "string" ? value : Object.entries(value).map(([name, inner]) => `${name}.${path(inner)}`)[0];

function told(text, walks) {
  const log = { did: [], crossed: [], went: false };
  const asked = { yes: [] };
  const chart = machine(text, log, asked);
  const inspect = (event) => {
    if (event.type === "@xstate.microstep") log.went ||= event._transitions.length > 0;
  };
  return walks.map((walk) => {
    Object.assign(log, { did: [], crossed: [] }); // what starting does is nobody's outcome
    const actor = createActor(chart, { inspect }).start();
    const outcomes = walk.map(({ trigger, yes }) => {
      Object.assign(log, { did: [], crossed: [], went: false });
      asked.yes = yes;
      actor.send({ type: trigger });
      const snapshot = actor.getSnapshot();
      if (snapshot.status !== "active") throw new Error(`the machine is ${snapshot.status} after ${trigger}: ${snapshot.error}`);
      return { state: path(snapshot.value), did: log.did, went: log.went, crossed: log.crossed };
    });
    actor.stop();
    return outcomes;
  });
}

const request = readFileSync(0, "utf8");
const { config, walks } = request ? JSON.parse(request) : { walks: [] };
process.stdout.write(JSON.stringify({ version, told: request ? told(config, walks) : [] }));
