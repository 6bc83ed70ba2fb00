import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import loopguard.LoopGuard;

/** A loop without a framework, told where to by variables: java Own SESSION. */
public class Own {
    private static final LoopGuard guard = new LoopGuard();
    private static final int STEP_TAKES_MS = 400;

    /** Makes a call of a tool, unless it is refused, and writes the span that the guard reads. */
    static String called(Tracer tracer, String session, String tool, String arguments, Tool call) {
        var span = tracer.spanBuilder("execute_tool " + tool)
            .setAttribute("gen_ai.operation.name", "execute_tool")
            .setAttribute("gen_ai.conversation.id", session)
            .setAttribute("gen_ai.tool.name", tool)
            .setAttribute("gen_ai.tool.call.arguments", arguments).startSpan();
        String result = "";
        try (var scope = span.makeCurrent()) {
            guard.refuses(session, tool, arguments).ifPresent(refused -> { throw refused; });
            result = call.make(arguments);
            return result;
        } catch (LoopGuard.Refused refused) {
            span.setAttribute("error.type", "loopguard_deny");
            result = refused.getMessage();
            throw refused;
        } finally {
            span.setAttribute("gen_ai.tool.call.result", result);
            span.end();
        }
    }

    interface Tool {
        String make(String arguments);
    }

    public static void main(String[] arguments) throws Exception {
        var session = arguments[0];
        var spans = AutoConfiguredOpenTelemetrySdk.initialize().getOpenTelemetrySdk();
        try {
            guard.untilAborted(session, () -> {
                for (int step = 0; step < 300; step++) {
                    guard.gate(session).ifPresent(hint -> System.out.println("hint: " + hint));
                    try {
                        called(spans.getTracer("my-agent"), session, "search", "{\"q\": \"x\"}",
                            query -> "nothing was found for this query");
                    } catch (LoopGuard.Refused refused) {
                        System.out.println("refused: " + refused.getMessage());
                    }
                    Thread.sleep(STEP_TAKES_MS);
                }
                return null;
            });
        } catch (LoopGuard.Stopped stopped) {
            System.out.println("stopped: " + stopped.getMessage());
        }
        spans.close();
    }
}
