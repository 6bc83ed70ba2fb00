import java.util.List;

/** Says what the guard answers: java Asks HINTED DENIED ABORTED. */
public class Asks {
    public static void main(String[] sessions) {
        var guard = new LoopGuard();
        for (int time = 0; time < 2; time++) {
            System.out.println("hint: " + guard.gate(sessions[0]).orElse(""));
        }
        for (String tool : List.of("search", "write")) {
            System.out.println("refused: " + guard.refuses(sessions[1], tool).orElse(""));
        }
        try {
            guard.gate(sessions[2]);
            System.out.println("stopped: <nil>");
        } catch (IllegalStateException stopped) {
            System.out.println("stopped: " + stopped.getMessage());
        }
    }
}
