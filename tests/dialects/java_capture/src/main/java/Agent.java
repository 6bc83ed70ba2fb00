import io.micrometer.observation.ObservationRegistry;
import io.micrometer.tracing.handler.DefaultTracingObservationHandler;
import io.micrometer.tracing.otel.bridge.OtelCurrentTraceContext;
import io.micrometer.tracing.otel.bridge.OtelTracer;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import loopguard.LoopGuard;
import loopguard.springai.ConversationFilter;
import loopguard.springai.GuardedTool;
import loopguard.springai.LoopGuardAdvisor;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor;
import org.springframework.ai.chat.client.advisor.ToolCallingAdvisor;
import org.springframework.ai.chat.client.advisor.api.Advisor;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.memory.MessageWindowChatMemory;
import org.springframework.ai.model.tool.ToolCallingManager;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiChatOptions;
import org.springframework.ai.support.ToolCallbacks;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.ai.tool.observation.ToolCallingContentObservationFilter;

/** An agent of Spring AI: java Agent MODEL_URL OTLP_URL SESSION; with LOOPGUARD_URL it asks. */
public class Agent {
    static class Tools {
        @Tool(description = "Searches.")
        String search(String query) {
            return "no results for " + query;
        }

        @Tool(description = "Fails.")
        String broken(int x) {
            throw new IllegalStateException("broken backend for x=" + x);
        }
    }

    public static void main(String[] arguments) {
        var traces = arguments[1] + "/v1/traces";
        var exporter = OtlpHttpSpanExporter.builder().setEndpoint(traces)
            .addHeader("Authorization", "Bearer " + System.getenv("LOOPGUARD_TOKEN")).build();
        var name = Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), "agents"));
        var provider = SdkTracerProvider.builder().setResource(name)
            .addSpanProcessor(SimpleSpanProcessor.create(exporter)).build();
        var current = new OtelCurrentTraceContext();
        var tracer = new OtelTracer(provider.get("agents"), current, event -> {});
        var observations = ObservationRegistry.create();
        observations.observationConfig()
            .observationHandler(new DefaultTracingObservationHandler(tracer))
            // What `spring.ai.tools.observations.include-content=true` adds.
            .observationFilter(new ToolCallingContentObservationFilter())
            .observationFilter(new ConversationFilter());

        var manager = ToolCallingManager.builder().observationRegistry(observations).build();
        var options = OpenAiChatOptions.builder()
            .model("scripted-model").apiKey("none").baseUrl(arguments[0]).build();
        var model = OpenAiChatModel.builder()
            .options(options).observationRegistry(observations).build();
        var window = MessageWindowChatMemory.builder().build();
        var memory = MessageChatMemoryAdvisor.builder(window).build();
        var loop = ToolCallingAdvisor.builder().toolCallingManager(manager).build();
        var guarded = System.getenv("LOOPGUARD_URL") != null;
        var guard = new LoopGuard();
        List<Advisor> asks = guarded ? List.of(new LoopGuardAdvisor(guard)) : List.of();
        var tools = Arrays.stream(ToolCallbacks.from(new Tools()))
            .map(tool -> guarded ? new GuardedTool(tool, guard) : tool)
            .toArray(ToolCallback[]::new);
        var client = ChatClient.builder(model, observations, null, null)
            .defaultAdvisors(loop, memory).defaultAdvisors(asks).build();
        try {
            System.out.println(client.prompt("What is the weather in Paris?").toolCallbacks(tools)
                .toolContext(Map.of(ChatMemory.CONVERSATION_ID, arguments[2]))
                .advisors(advisors -> advisors.param(ChatMemory.CONVERSATION_ID, arguments[2]))
                .call().content());
        } catch (LoopGuard.Stopped stopped) {
            System.out.println("stopped: " + stopped.getMessage());
        }
        provider.close();
    }
}
