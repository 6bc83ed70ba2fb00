// A real AI SDK agent, with a scripted model that asks for the same call again and again.
import { OpenTelemetry } from "@ai-sdk/otel";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, registerTelemetry, stepCountIs, tool } from "ai";
import { MockLanguageModelV4 as Mock } from "ai/test";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { LoopGuardControl } from "../../clients/typescript/dist/index.js";
import { prepareStep, stopWhen } from "../../clients/typescript/dist/ai-sdk.js";
import { Conversation } from "../../clients/typescript/dist/otel.js";

const [url, session] = process.argv.slice(2);
const exporter = new OTLPTraceExporter({ url: `${url}/v1/traces` });
const conversation = new Conversation();
const provider = new NodeTracerProvider({
  spanProcessors: [conversation, new BatchSpanProcessor(exporter, { scheduledDelayMillis: 100 })],
});
provider.register();
registerTelemetry(new OpenTelemetry());

const control = new LoopGuardControl({ url, session });
let hints = 0;
const usage = { inputTokens: { total: 10 }, outputTokens: { total: 5 } };
const model = new Mock({
  doGenerate: async ({ prompt }) => {
    hints += prompt.at(-1).role === "user" && prompt.length > 1 ? 1 : 0;
    await sleep(400); // as a real model, so that a batch is exported between two steps
    return {
      content: [{ type: "tool-call", toolCallId: `call-${Math.random()}`, toolName: "search", input: '{"q":"x"}' }],
      finishReason: { unified: "tool-calls", raw: "tool_calls" },
      usage,
      warnings: [],
    };
  },
});
const { steps } = await conversation.run(session, () => generateText({
  model,
  tools: { search: tool({ inputSchema: z.object({ q: z.string() }), execute: async () => "nothing found" }) },
  prompt: "find it",
  stopWhen: [stepCountIs(30), stopWhen(control)],
  prepareStep: prepareStep(control),
  telemetry: { isEnabled: true },
}));
await provider.forceFlush();
console.log(JSON.stringify({ steps: steps.length, hints, action: control.current.action }));
await provider.shutdown();
