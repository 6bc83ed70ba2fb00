package loopguard.springai;

import io.opentelemetry.api.trace.Span;
import loopguard.LoopGuard;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.model.ToolContext;
import org.springframework.ai.tool.ToolCallback;
import org.springframework.ai.tool.definition.ToolDefinition;
import org.springframework.ai.tool.metadata.ToolMetadata;

/** A tool whose denied calls are refused, and fail: the model gets the reason for a result. */
public record GuardedTool(ToolCallback tool, LoopGuard guard) implements ToolCallback {
    @Override
    public ToolDefinition getToolDefinition() {
        return tool.getToolDefinition();
    }

    @Override
    public ToolMetadata getToolMetadata() {
        return tool.getToolMetadata();
    }

    @Override
    public String call(String input) {
        return tool.call(input);
    }

    @Override
    public String call(String input, ToolContext context) {
        if (context != null
                && context.getContext().get(ChatMemory.CONVERSATION_ID) instanceof String session) {
            var refused = guard.refuses(session, getToolDefinition().name(), input);
            if (refused.isPresent()) {
                Span.current().setAttribute("error.type", "loopguard_deny");
                return refused.get().getMessage();
            }
        }
        return tool.call(input, context);
    }
}
