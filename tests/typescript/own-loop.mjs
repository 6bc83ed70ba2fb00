// A loop of one's own, as docs/other-languages.md shows it: node own-loop.mjs URL SESSION.
import { trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { LoopGuardControl, LoopGuardStop } from "../../clients/typescript/dist/index.js";

const [url, session] = process.argv.slice(2);
const exporter = new OTLPTraceExporter({ url: `${url}/v1/traces` });
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const control = new LoopGuardControl({ url, session });
const said = { hints: 0, made: 0, refused: 0, stopped: "" };

// begin
const tracer = trace.getTracer("my-agent");

async function called(tool, input, make) {
  const span = tracer.startSpan(`execute_tool ${tool}`, { attributes: {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.conversation.id": session,
    "gen_ai.tool.name": tool,
    "gen_ai.tool.call.arguments": JSON.stringify(input),
  } });
  const refusal = await control.refuses(tool);
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
  return result;
}
// end

try {
  for (let step = 0; step < 30; step += 1) {
    await control.check();
    if (await control.hint()) said.hints += 1;
    const made = said.made;
    await called("search", { q: "x" }, async () => {
      said.made += 1;
      return "nothing was found for this query";
    });
    if (made === said.made) said.refused += 1;
    await provider.forceFlush();
  }
} catch (error) {
  if (!(error instanceof LoopGuardStop)) throw error;
  said.stopped = error.message;
}
await provider.shutdown();
console.log(JSON.stringify(said));
