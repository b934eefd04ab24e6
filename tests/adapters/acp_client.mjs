// The official TypeScript client against `python -m kernel acp`: one session, asked and cancelled; what it saw is printed.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const folder = join(process.env.PHASEKERNEL_NODE_MODULES, "@agentclientprotocol", "sdk", "dist", "v1", "stable", "acp.js");
const { ClientSideConnection, ndJsonStream, PROTOCOL_VERSION } = await import(pathToFileURL(folder));
const [cwd, question, ...command] = process.argv.slice(2);
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const seen = [];
let onUpdate = () => {};
const client = {
  async sessionUpdate({ update }) {
    seen.push(update);
    onUpdate(update);
  },
  async requestPermission() {
    throw new Error("nothing here needs a permission");
  },
};
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new ClientSideConnection(() => client, stream);
const hello = await connection.initialize({ protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
const { sessionId } = await connection.newSession({ cwd, mcpServers: [] });
const prompt = [{ type: "text", text: question }];
const first = await connection.prompt({ sessionId, prompt });
const updates = seen.splice(0);
onUpdate = () => {
  onUpdate = () => {};
  connection.cancel({ sessionId });
};
const second = await connection.prompt({ sessionId, prompt });
let refused = null;
try {
  await connection.prompt({ sessionId: "nobody", prompt });
} catch (error) {
  refused = error.message;
}
agent.stdin.end();
const status = await new Promise((resolve) => agent.on("exit", resolve));
console.log(JSON.stringify({ hello, first, second, updates, refused, status }));
