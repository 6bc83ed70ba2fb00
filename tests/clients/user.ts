import { LoopGuardControl, LoopGuardStop, type Control } from "otel-loopguard";
import { prepareStep, stopWhen } from "otel-loopguard/ai-sdk";
import * as mastra from "otel-loopguard/mastra";
const control = new LoopGuardControl({ session: "chat-1", onProblem: () => {} });
const found: Control = await control.check();
const warning: string | null | undefined = found.warning;
const error = new LoopGuardStop(found);
export { error, mastra, prepareStep, stopWhen, warning };
