// The official TypeScript client against `python -m kernel acp`: one prompt, cancelled or not; what it saw is printed.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const folder = join(process.env.PHASEKERNEL_NODE_MODULES, "@agentclientprotocol", "sdk", "dist", "v1", "stable", "acp.js");
const { client, methods, ndJsonStream, PROTOCOL_VERSION } = await import(pathToFileURL(folder));
const [then, cwd, question, ...command] = process.argv.slice(2);
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const exited = new Promise((resolve) => agent.on("exit", resolve));
const seen = [];
let onUpdate = () => {};
const app = client({ name: "a test" }).onNotification(methods.client.session.update, ({ params }) => {
  seen.push(params.update);
  onUpdate();
});
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const said = await app.connectWith(stream, async (context) => {
  const { initialize, session } = methods.agent;
  const hello = await context.request(initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await context.request(session.new, { cwd, mcpServers: [] });
  const prompt = [{ type: "text", text: question }];
  if (then === "cancel") {
    onUpdate = () => {
      onUpdate = () => {};
      context.notify(session.cancel, { sessionId });
    };
  }
  const answered = await context.request(session.prompt, { sessionId, prompt });
  let refused = null;
  try {
    await context.request(session.prompt, { sessionId: "nobody", prompt });
  } catch (error) {
    refused = error.message;
  }
  return { hello, answered, updates: seen, refused };
});
agent.stdin.end();
console.log(JSON.stringify({ ...said, status: await exited }));
