// A loop of one's own, as docs/other-languages.md shows it: node own-loop.mjs SESSION. Variables say
// where spans go, when, and whom to ask.
import { trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { setTimeout as sleep } from "node:timers/promises";
import { LoopGuardControl, LoopGuardStop } from "../../clients/typescript/dist/index.js";

const [session] = process.argv.slice(2);
const processor = new BatchSpanProcessor(new OTLPTraceExporter());
const provider = new NodeTracerProvider({ spanProcessors: [processor] });
provider.register();
const control = new LoopGuardControl({ session });
const STEP_TAKES_MS = 400;

// begin
const tracer = trace.getTracer("my-agent");

async function called(tool, input, make) {
  const span = tracer.startSpan(`execute_tool ${tool}`, { attributes: {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.conversation.id": session,
    "gen_ai.tool.name": tool,
    "gen_ai.tool.call.arguments": JSON.stringify(input),
  } });
  const refusal = await control.refuses(tool, input);
  let result = refusal?.hint ?? refusal?.reason;
  if (refusal) span.setAttribute("error.type", "loopguard_deny");
  else try {
    result = await make(input);
  } catch (error) {
    result = String(error);
    span.setAttribute("error.type", error.name);
  }
  span.setAttribute("gen_ai.tool.call.result", result);
  span.end();
  return { result, refused: refusal !== undefined };
}
// end

try {
  const signal = control.abortSignal();
  for (let step = 0; step < 300; step += 1) {
    await control.check();
    const hint = await control.hint();
    if (hint) console.log(`hint: ${hint}`);
    const { result, refused } = await called("search", { q: "x" }, async () => "nothing was found for this query");
    if (refused) console.log(`refused: ${result}`);
    await sleep(STEP_TAKES_MS, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
} catch (error) {
  if (!(error instanceof LoopGuardStop)) throw error;
  console.log(`stopped: ${error.message}`);
}
control.close();
await provider.shutdown();
