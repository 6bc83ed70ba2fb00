import java.util.List;
import loopguard.LoopGuard;

/** Says what the guard answers, with a line for each question: java Asks HINTED DENIED ABORTED LATER. */
public class Asks {
    public static void main(String[] sessions) throws Exception {
        var guard = new LoopGuard();
        for (int time = 0; time < 2; time++) {
            System.out.println("hint: " + guard.gate(sessions[0]).orElse(""));
        }
        for (var call : List.of("search {\"q\": \"x\"}", "search {\"q\": \"\ty\"}", "search", "write")) {
            var parts = call.split(" ", 2);
            var refused = guard.refuses(sessions[1], parts[0], parts.length > 1 ? parts[1] : null);
            System.out.println("refused: " + refused.map(Throwable::getMessage).orElse("<nil>"));
        }
        try {
            guard.gate(sessions[2]);
            System.out.println("stopped: <nil>");
        } catch (LoopGuard.Stopped stopped) {
            System.out.println("stopped: " + stopped.getMessage());
        }
        try {
            guard.untilAborted(sessions[3], () -> {
                System.out.println("works");
                try {
                    Thread.sleep(600_000);
                } catch (InterruptedException failed) { // as a framework that tries again
                    Thread.sleep(600_000);
                }
                return null;
            });
        } catch (LoopGuard.Stopped stopped) {
            System.out.println("ended: " + stopped.getMessage());
        }
        System.out.println("interrupted: " + Thread.interrupted());
    }
}
