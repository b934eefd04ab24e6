// AG-UI's own client against the server: one run, and what it makes of it.
import { createRequire } from "node:module";
import { join } from "node:path";

const load = createRequire(join(process.env.PHASEKERNEL_NODE_MODULES, "x.js"));
const { HttpAgent } = load("@ag-ui/client");

const agent = new HttpAgent({ url: process.argv[2], threadId: "from-node" });
agent.setMessages([{ id: "m1", role: "user", content: process.argv[3] }]);
const seen = [];
await agent.runAgent({}, { onEvent: ({ event }) => void seen.push(event.type) });
console.log(JSON.stringify({ seen, messages: agent.messages, state: agent.state }));
