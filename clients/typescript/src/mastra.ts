/**
 * For Mastra, 1.16 or newer:
 *
 *     const control = new LoopGuardControl({ session: threadId });
 *     await agent.generate(prompt, {
 *       stopWhen: stopWhen(control),
 *       prepareStep: prepareStep(control),
 *       abortSignal: control.abortSignal(),
 *       tracingOptions: { metadata: { threadId } },
 *     });
 */
import type { LoopGuardControl } from "./index.js";

export { stopWhen } from "./ai-sdk.js";

/** Puts a hint among the next step's system messages, once per decision. */
export function prepareStep(
  control: LoopGuardControl,
): <Message>(step: { systemMessages: Message[] }) => Promise<{ systemMessages?: Message[] }> {
  return async <Message>({ systemMessages }: { systemMessages: Message[] }) => {
    const hint = await control.hint();
    if (hint === undefined) return {};
    return { systemMessages: [...systemMessages, { role: "system", content: hint } as Message] };
  };
}

/**
 * For `OtelExporter`, with `batchSize: 1`: an exporter that hands each span to a processor at once. The
 * delay of that one counts then, and no span waits for the answer to the one before.
 */
export function exporterTo<Span>(processor: {
  onEnd(span: Span): void;
  forceFlush(): Promise<void>;
  shutdown(): Promise<void>;
}) {
  return {
    export(spans: Span[], done: (result: { code: number }) => void): void {
      for (const span of spans) processor.onEnd(span);
      done({ code: 0 });
    },
    forceFlush: () => processor.forceFlush(),
    shutdown: () => processor.shutdown(),
  };
}
