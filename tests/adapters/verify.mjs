// Each line of the standard input is a stream of AG-UI events; for each, print what AG-UI's own client says of its order.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { join } from "node:path";

const load = createRequire(join(process.env.PHASEKERNEL_NODE_MODULES, "x.js"));
const { verifyEvents } = load("@ag-ui/client");
const { from, lastValueFrom, toArray } = load("rxjs");

for await (const line of createInterface({ input: process.stdin })) {
  let complaint = null;
  try {
    await lastValueFrom(from(JSON.parse(line)).pipe(verifyEvents(false), toArray()));
  } catch (error) {
    complaint = String(error.message ?? error);
  }
  console.log(JSON.stringify(complaint));
}
