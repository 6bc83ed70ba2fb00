package loopguard;

import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * Asks {@code otel-loopguard serve} what agents may do. Needs the JDK only; thread-safe.
 *
 * <p>The server judges the spans that the agent exports; see docs/other-languages.md. This class
 * speaks two operations of its OpenAPI document ({@code GET /v1/openapi.json}):
 * {@code control_by_query} and {@code control_of_call_by_query}.
 *
 * <p>A server that cannot be reached stops nobody. Problems are logged, once of each kind.
 */
public final class LoopGuard {
    /** What the runtime of a session should do at this moment; null where the server has nothing. */
    public record Control(
        String session, String action, boolean stops, String reason, String hint, String by,
        Long until, Decision decision, String warning, String version) {}

    /** What a detector found. */
    public record Decision(
        String id, String detector, String rule, String message, String tool, long step,
        double count, double confidence, boolean shadow) {}

    /** The session is aborted: its run should end. */
    public static final class Stopped extends RuntimeException {
        private final transient Control control;

        Stopped(Control control) {
            super(control.reason() + " (session " + control.session() + " aborted)");
            this.control = control;
        }

        public Control control() {
            return control;
        }
    }

    /** A call must not be made: the model gets the message in place of the result. */
    public static final class Refused extends RuntimeException {
        private final transient Control control;

        Refused(Control control) {
            super(control.hint() == null ? control.reason() : control.hint());
            this.control = control;
        }

        public Control control() {
            return control;
        }
    }

    /** For one question: a server that is near answers within milliseconds. */
    private static final long ASK_MS = 2_000;
    /** For a change, of the 60 that the server allows: proxies often cut after 60. */
    private static final long WAIT_S = 30;
    private static final long POLL_MS = WAIT_S * 1_000 + 5_000;
    private static final long RETRY_MS = 1_000;
    /** Between questions, if whatever answers does not wait. */
    private static final long EARLY_MS = 100;
    /** Without an answer in a pause: longer than a server's restart. */
    private static final long PATIENCE_MS = 30_000;
    /** Sessions whose last hint is known. */
    private static final int MOST_HINTED = 10_000;
    /** Bytes of an answer: a control has a few hundred, another program may go on without end. */
    private static final int MOST_READ = 1 << 20;

    private final HttpClient client = HttpClient.newBuilder()
        .version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofMillis(ASK_MS)).build();
    private final String url;
    private final String token;
    private final Consumer<String> warn;
    private final Set<String> told = ConcurrentHashMap.newKeySet();
    private final Map<String, String> hinted = Collections.synchronizedMap(new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
            return size() > MOST_HINTED;
        }
    });

    /** Takes the server's address and token from LOOPGUARD_URL and LOOPGUARD_TOKEN. */
    public LoopGuard() {
        this(Optional.ofNullable(System.getenv("LOOPGUARD_URL")).filter(url -> !url.isEmpty())
                .orElse("http://127.0.0.1:4318"),
            System.getenv("LOOPGUARD_TOKEN"),
            text -> System.getLogger("otel-loopguard").log(System.Logger.Level.WARNING, text));
    }

    /**
     * Takes both as they are given.
     *
     * @param token Of the tenant, or null.
     * @param warn Takes what goes wrong.
     */
    public LoopGuard(String url, String token, Consumer<String> warn) {
        this.url = url.replaceAll("/+$", "");
        this.token = token;
        this.warn = warn;
    }

    /**
     * Asks before a step, and waits while the session is paused.
     *
     * @param session The conversation id of its spans, else their trace id in hex.
     * @return A hint for the model, once.
     * @throws Stopped The session is aborted.
     * @throws CancellationException The thread was interrupted, and is so still.
     */
    public Optional<String> gate(String session) {
        var asked = ask(session, "", ASK_MS, null);
        var control = asked.orElse(allow(session));
        for (long heard = System.nanoTime(); "pause".equals(control.action()); ) {
            asked = await(session, control.version());
            if (asked.isPresent()) {
                control = asked.get();
                heard = System.nanoTime();
            } else if (System.nanoTime() - heard > PATIENCE_MS * 1_000_000) {
                break;
            }
        }
        if ("abort".equals(control.action())) {
            throw new Stopped(control);
        }
        boolean fresh = control.hint() != null
            && !control.version().equals(hinted.put(session, control.version()));
        return fresh ? Optional.of(control.hint()) : Optional.empty();
    }

    /**
     * Asks before a call of a tool; throw what is returned, or give the model its message.
     *
     * @param arguments Their JSON; null if it is not known: then the tool of a denied loop tells.
     * @throws CancellationException As {@link #gate}.
     */
    public Optional<Refused> refuses(String session, String tool, String arguments) {
        var call = "{\"tool\": " + Json.written(tool)
            + (arguments == null ? "" : ", \"arguments\": " + Json.written(arguments)) + "}";
        return ask(session, "", ASK_MS, call).filter(Control::stops).map(Refused::new);
    }

    /** Asks for the control. Where the server does not answer, everything is allowed. */
    public Control control(String session) {
        return ask(session, "", ASK_MS, null).orElse(allow(session));
    }

    /**
     * Does work on this thread, which is interrupted once the session is aborted, and each second
     * until the work ends: frameworks take an interrupt for a failure, and try again.
     *
     * @throws Stopped The session was aborted, and the work ended with an exception.
     * @throws Exception As the work does.
     */
    public <T> T untilAborted(String session, Callable<T> work) throws Exception {
        var watch = new Watch(session, Thread.currentThread());
        watch.start();
        try {
            return work.call();
        } catch (Exception problem) {
            var stopped = watch.end();
            if (stopped == null || problem instanceof Stopped) {
                throw problem;
            }
            stopped.addSuppressed(problem);
            throw stopped;
        } finally {
            watch.end();
        }
    }

    /** Follows a session, and interrupts who works for it. */
    private final class Watch extends Thread {
        private final String session;
        private final Thread worker;
        private boolean ended;
        private Stopped stopped;

        Watch(String session, Thread worker) {
            super("otel-loopguard");
            this.session = session;
            this.worker = worker;
            setDaemon(true);
        }

        @Override
        public void run() {
            String version = "none";
            try {
                while (!isOver()) {
                    var control = await(session, version);
                    version = control.map(Control::version).orElse("none");
                    if (control.filter(one -> "abort".equals(one.action())).isPresent()) {
                        stop(control.get());
                    }
                }
            } catch (CancellationException | InterruptedException over) {
                // end() interrupts the question
            }
        }

        private synchronized boolean isOver() {
            return ended;
        }

        private synchronized void stop(Control control) throws InterruptedException {
            stopped = new Stopped(control);
            while (!ended) {
                worker.interrupt();
                wait(RETRY_MS);
            }
        }

        /** Returns what it was stopped with, or null; the worker is not interrupted any more. */
        synchronized Stopped end() {
            if (!ended) {
                ended = true;
                interrupt();
                if (stopped != null) {
                    Thread.interrupted();
                }
            }
            return stopped;
        }
    }

    private static Control allow(String session) {
        return new Control(session, "allow", false, null, null, null, null, null, null, "");
    }

    /** Asks for a change of a version, and takes its time before what is asked next. */
    private Optional<Control> await(String session, String version) {
        long begun = System.nanoTime();
        var found = ask(session, "&wait=" + WAIT_S + "&since=" + encoded(version), POLL_MS, null);
        boolean early = System.nanoTime() - begun < EARLY_MS * 1_000_000;
        try {
            Thread.sleep(found.isEmpty() ? RETRY_MS : early ? EARLY_MS : 0);
        } catch (InterruptedException interrupted) {
            throw cancelled(interrupted);
        }
        return found;
    }

    /** The control, of a call if there is one; empty if the server does not answer in time. */
    private Optional<Control> ask(String session, String query, long limitMs, String call) {
        try {
            var at = url + "/v1/session/control?id=" + encoded(session) + query;
            var request = HttpRequest.newBuilder(URI.create(at));
            if (token != null && !token.isEmpty()) {
                request.header("Authorization", "Bearer " + token);
            }
            if (call != null) {
                request.header("Content-Type", "application/json").POST(BodyPublishers.ofString(call));
            }
            var said = new ByteArrayOutputStream();
            var asked = client.sendAsync(request.build(), BodyHandlers.ofByteArrayConsumer(
                part -> part.ifPresent(bytes -> take(said, bytes))));
            try {
                var answer = asked.get(limitMs, TimeUnit.MILLISECONDS);
                if (answer.statusCode() != 200) {
                    var token = ", as it takes no such token (LOOPGUARD_TOKEN)";
                    problem("the server answered " + answer.statusCode()
                        + (answer.statusCode() == 401 ? token : ""));
                    return Optional.empty();
                }
                var control = Json.control(said.toString(StandardCharsets.UTF_8));
                if (control.warning() != null) {
                    tell("warning", control.warning());
                }
                return Optional.of(control);
            } finally {
                asked.cancel(true);
            }
        } catch (TimeoutException late) {
            problem("no answer within " + limitMs + " ms");
        } catch (ExecutionException failed) {
            problem(URI.create(url).getAuthority() + ": " + failed.getCause().getClass().getSimpleName());
        } catch (Json.Unexpected unexpected) {
            problem("the answer is no control of a session");
        } catch (IllegalArgumentException unusable) {
            problem("address or token cannot be used");
        } catch (InterruptedException interrupted) {
            throw cancelled(interrupted);
        }
        return Optional.empty();
    }

    private static void take(ByteArrayOutputStream said, byte[] bytes) {
        if (said.size() + bytes.length > MOST_READ) {
            throw new IllegalStateException();
        }
        said.writeBytes(bytes);
    }

    private static CancellationException cancelled(InterruptedException cause) {
        Thread.currentThread().interrupt();
        var cancelled = new CancellationException("interrupted");
        cancelled.initCause(cause);
        return cancelled;
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private void problem(String text) {
        tell(text, text + "; the run goes on unguarded until that is mended");
    }

    /** Tells of each kind once; there are few. */
    private void tell(String kind, String text) {
        if (told.add(kind)) {
            try {
                warn.accept("otel-loopguard: " + text.replaceAll("\\p{Cntrl}", " "));
            } catch (RuntimeException failed) {
                // The agent goes on, and so does the worker that follows its flag.
            }
        }
    }

    /** Reads the answer of a server: the JDK has no JSON. */
    private static final class Json {
        static final class Unexpected extends Exception {}

        /** Objects within each other; a control has two. */
        private static final int MOST_DEEP = 20;

        private final String text;
        private int at;
        private int deep;

        private Json(String text) {
            this.text = text;
        }

        static Control control(String text) throws Unexpected {
            try {
                var json = new Json(text);
                var it = (Map<?, ?>) json.value();
                json.blank();
                if (it.get("action") == null || it.get("version") == null || json.at < text.length()) {
                    throw new Unexpected();
                }
                var of = (Map<?, ?>) it.get("decision");
                return new Control(
                    text(it, "session"), text(it, "action"), flag(it, "stops"), text(it, "reason"),
                    text(it, "hint"), text(it, "by"), (Long) it.get("until"),
                    of == null ? null : new Decision(
                        text(of, "id"), text(of, "detector"), text(of, "rule"),
                        text(of, "message"), text(of, "tool"), (long) number(of, "step"),
                        number(of, "count"), number(of, "confidence"), flag(of, "shadow")),
                    text(it, "warning"), text(it, "version"));
            } catch (ClassCastException | NullPointerException | IndexOutOfBoundsException
                | NumberFormatException unexpected) {
                throw new Unexpected();
            }
        }

        static String written(String text) {
            var found = new StringBuilder("\"");
            for (char sign : text.toCharArray()) {
                found.append(sign < ' ' || sign == '"' || sign == '\\'
                    ? String.format("\\u%04x", (int) sign) : sign);
            }
            return found.append('"').toString();
        }

        private static String text(Map<?, ?> of, String name) {
            return (String) of.get(name);
        }

        private static boolean flag(Map<?, ?> of, String name) {
            return Boolean.TRUE.equals(of.get(name));
        }

        private static double number(Map<?, ?> of, String name) {
            return of.get(name) == null ? 0 : ((Number) of.get(name)).doubleValue();
        }

        /** A Map, a List, a String, a Boolean, a Long, a Double, or null. */
        private Object value() throws Unexpected {
            if (++deep > MOST_DEEP) {
                throw new Unexpected();
            }
            blank();
            char first = text.charAt(at);
            var found = first == '{' ? members() : first == '[' ? items()
                : first == '"' ? string() : word();
            deep--;
            return found;
        }

        private Map<String, Object> members() throws Unexpected {
            var found = new HashMap<String, Object>();
            for (boolean more = opens('}'); more; more = goesOn('}')) {
                blank();
                var name = string();
                blank();
                take(':');
                found.put(name, value());
            }
            return found;
        }

        private List<Object> items() throws Unexpected {
            var found = new ArrayList<Object>();
            for (boolean more = opens(']'); more; more = goesOn(']')) {
                found.add(value());
            }
            return found;
        }

        private String string() throws Unexpected {
            take('"');
            var found = new StringBuilder();
            for (char sign = text.charAt(at++); sign != '"'; sign = text.charAt(at++)) {
                if (sign == '\\') {
                    sign = text.charAt(at++);
                    int known = "bfnrt".indexOf(sign);
                    if (sign == 'u') {
                        sign = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                        at += 4;
                    } else if (known >= 0) {
                        sign = "\b\f\n\r\t".charAt(known);
                    }
                }
                found.append(sign);
            }
            return found.toString();
        }

        private Object word() {
            int begin = at;
            while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            var word = text.substring(begin, at);
            return switch (word) {
                case "null" -> null;
                case "true" -> true;
                case "false" -> false;
                default -> {
                    if (word.matches("-?\\d{1,19}")) {
                        yield Long.valueOf(word);
                    }
                    yield Double.valueOf(word);
                }
            };
        }

        /** Takes the bracket that opens; false if the one that closes follows. */
        private boolean opens(char close) {
            at++;
            blank();
            boolean some = text.charAt(at) != close;
            at += some ? 0 : 1;
            return some;
        }

        /** Takes a comma or the bracket that closes; true for the comma. */
        private boolean goesOn(char close) throws Unexpected {
            blank();
            boolean some = text.charAt(at) == ',';
            take(some ? ',' : close);
            return some;
        }

        private void take(char sign) throws Unexpected {
            if (text.charAt(at++) != sign) {
                throw new Unexpected();
            }
        }

        private void blank() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
        }
    }
}
