import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

/** Asks for the control of sessions. A server that does not answer stops nobody. */
public class LoopGuard {
    record Decision(String tool) {}

    record Control(
        String action, boolean stops, String reason, String hint, String version, Decision decision) {}

    private static final Control ALLOW = new Control("allow", false, null, null, "", null);
    private static final AtomicBoolean UNGUARDED = new AtomicBoolean();

    private final HttpClient client =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final JsonMapper mapper = new JsonMapper();
    private final String url;
    private final String token;
    private final Map<String, String> told = Collections.synchronizedMap(new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
            return size() > 10_000;
        }
    });

    /** Takes the server's address and token from LOOPGUARD_URL and LOOPGUARD_TOKEN. */
    public LoopGuard() {
        this(System.getenv().getOrDefault("LOOPGUARD_URL", "http://127.0.0.1:4318"),
            System.getenv("LOOPGUARD_TOKEN"));
    }

    public LoopGuard(String url, String token) {
        this.url = url;
        this.token = token;
    }

    /** Asks before a step, waits while the session is paused, and throws if it is aborted.
     *
     * @return A hint for the model, once.
     */
    public Optional<String> gate(String session) {
        Control control = ask(session, "", 2);
        while ("pause".equals(control.action())) {
            control = ask(session, "&wait=30&since=" + control.version(), 35);
        }
        if ("abort".equals(control.action())) {
            throw new IllegalStateException(control.reason());
        }
        boolean fresh = control.hint() != null
            && !control.version().equals(told.put(session, control.version()));
        return fresh ? Optional.of(control.hint()) : Optional.empty();
    }

    /** Asks before a call: if there is a reason, the model gets it in place of the result. */
    public Optional<String> refuses(String session, String tool) {
        Control control = ask(session, "", 2);
        boolean mine = !"deny".equals(control.action()) || control.decision() == null
            || tool.equals(control.decision().tool());
        String reason = control.hint() == null ? control.reason() : control.hint();
        return control.stops() && mine ? Optional.of(reason) : Optional.empty();
    }

    private Control ask(String session, String query, int limit) {
        var id = URLEncoder.encode(session, StandardCharsets.UTF_8);
        var request = HttpRequest.newBuilder(URI.create(url + "/v1/session/control?id=" + id + query))
            .timeout(Duration.ofSeconds(limit));
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        try {
            var answer = client.send(request.build(), BodyHandlers.ofString());
            if (answer.statusCode() == 200) {
                return mapper.readValue(answer.body(), Control.class);
            }
            return unguarded("the server answered " + answer.statusCode());
        } catch (IOException | JacksonException problem) {
            return unguarded(problem.toString());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", interrupted);
        }
    }

    private static Control unguarded(String problem) {
        if (!UNGUARDED.getAndSet(true)) {
            System.getLogger("otel-loopguard").log(
                System.Logger.Level.WARNING, problem + "; the run goes on unguarded");
        }
        return ALLOW;
    }
}
