// A real Mastra agent, with a scripted model that asks for the same call again and again.
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { SpanType } from "@mastra/core/observability";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { MockLanguageModelV4 as Mock } from "ai/test";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { LoopGuardControl } from "../../clients/typescript/dist/index.js";
import { exporterTo, prepareStep, stopWhen } from "../../clients/typescript/dist/mastra.js";

const [url, session] = process.argv.slice(2);
const control = new LoopGuardControl({ url, session });
let hints = 0;
const model = new Mock({
  doGenerate: async ({ prompt }) => {
    hints += prompt.filter(({ role }) => role === "system").length - 1;
    await sleep(400); // as a real model, so that a batch is exported between two steps
    return {
      content: [{ type: "tool-call", toolCallId: `call-${Math.random()}`, toolName: "search", input: '{"q":"x"}' }],
      finishReason: { unified: "tool-calls", raw: "tool_calls" },
      usage: { inputTokens: { total: 10 }, outputTokens: { total: 5 } },
      warnings: [],
    };
  },
});
const search = createTool({
  id: "search", description: "Searches.", inputSchema: z.object({ q: z.string() }),
  execute: async () => "nothing found",
});
// Its batches wait for 5 s, unless they are full, and each for the answer to the one before.
const batches = new BatchSpanProcessor(new OTLPTraceExporter({ url: `${url}/v1/traces` }), { scheduledDelayMillis: 100 });
const exporter = new OtelExporter({
  provider: { custom: { endpoint: url, protocol: "http/protobuf" } }, exporter: exporterTo(batches), batchSize: 1,
});
const mastra = new Mastra({
  agents: { helper: new Agent({ id: "helper", name: "helper", instructions: "Find it.", model, tools: { search } }) },
  observability: new Observability({ configs: { otel: {
    serviceName: "agents",
    exporters: [exporter],
    excludeSpanTypes: [SpanType.MODEL_CHUNK, SpanType.MODEL_STEP, SpanType.PROCESSOR_RUN],
  } } }),
  logger: false,
});
const { steps } = await mastra.getAgent("helper").generate("find it", {
  maxSteps: 30,
  stopWhen: stopWhen(control),
  prepareStep: prepareStep(control),
  tracingOptions: { metadata: { threadId: session } },
});
console.log(JSON.stringify({ steps: steps.length, hints, action: control.current.action }));
await exporter.shutdown();
