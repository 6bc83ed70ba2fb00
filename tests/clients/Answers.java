import loopguard.LoopGuard;

/** Says what a client makes of each answer: java Answers URL…. */
public class Answers {
    public static void main(String[] urls) {
        for (String url : urls) {
            var guard = new LoopGuard(url, "", text -> System.out.println("warned: " + text));
            for (int time = 0; time < 2; time++) {
                var hint = guard.gate("a b&c");
                var refused = guard.refuses("a b&c", "search", null).isPresent();
                System.out.println(guard.control("a b&c") + " " + hint.orElse("-") + " " + refused);
            }
        }
    }
}
