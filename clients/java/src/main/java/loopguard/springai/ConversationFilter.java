package loopguard.springai;

import io.micrometer.common.KeyValue;
import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationFilter;
import org.springframework.ai.chat.client.observation.ChatClientObservationContext;
import org.springframework.ai.chat.memory.ChatMemory;

/** Puts the id of the conversation on each span of a chat client, not only on the last to end. */
public class ConversationFilter implements ObservationFilter {
    @Override
    public Observation.Context map(Observation.Context context) {
        Observation.ContextView at = context;
        while (at != null) {
            if (at instanceof ChatClientObservationContext client) {
                Object id = client.getRequest().context().get(ChatMemory.CONVERSATION_ID);
                if (id != null) {
                    var named = KeyValue.of("gen_ai.conversation.id", id.toString());
                    context.addHighCardinalityKeyValue(named);
                }
                return context;
            }
            var parent = at.getParentObservation();
            at = parent == null ? null : parent.getContextView();
        }
        return context;
    }
}
