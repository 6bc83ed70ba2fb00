/**
 * For agents whose framework writes the session on no span, or only on the one that ends last:
 *
 *     const conversation = new Conversation();
 *     new NodeTracerProvider({ spanProcessors: [conversation, new BatchSpanProcessor(exporter)] }).register();
 *     await conversation.run(chatId, () => agent.invoke(prompt));
 */
import { AsyncLocalStorage } from "node:async_hooks";

/** A span processor that writes the session on all spans of a run. */
export class Conversation {
  readonly #session = new AsyncLocalStorage<string>();

  /** Calls a function; the spans that start in it are of the session. */
  run<Result>(session: string, agent: () => Result): Result {
    return this.#session.run(session, agent);
  }

  onStart(span: { setAttribute(key: string, value: string): unknown }): void {
    const session = this.#session.getStore();
    if (session !== undefined) span.setAttribute("gen_ai.conversation.id", session);
  }

  onEnd(): void {}

  async forceFlush(): Promise<void> {}

  async shutdown(): Promise<void> {}
}
