package loopguard.springai;

import loopguard.LoopGuard;
import org.springframework.ai.chat.client.ChatClientRequest;
import org.springframework.ai.chat.client.ChatClientResponse;
import org.springframework.ai.chat.client.advisor.api.AdvisorChain;
import org.springframework.ai.chat.client.advisor.api.BaseAdvisor;
import org.springframework.ai.chat.memory.ChatMemory;

/** Asks the guard before each model call: an abort throws, a hint is put before the model. */
public record LoopGuardAdvisor(LoopGuard guard) implements BaseAdvisor {
    @Override
    public int getOrder() {
        return 0; // inside the loop of tool calls
    }

    @Override
    public ChatClientRequest before(ChatClientRequest request, AdvisorChain chain) {
        if (!(request.context().get(ChatMemory.CONVERSATION_ID) instanceof String session)) {
            return request;
        }
        return guard.gate(session).map(hint -> {
            var prompt = request.prompt().augmentSystemMessage(system ->
                system.mutate().text((system.getText() + "\n\n" + hint).strip()).build());
            return request.mutate().prompt(prompt).build();
        }).orElse(request);
    }

    @Override
    public ChatClientResponse after(ChatClientResponse response, AdvisorChain chain) {
        return response;
    }
}
