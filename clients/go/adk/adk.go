// Package adk guards agents of ADK for Go with `otel-loopguard serve`.
//
// Give an agent the callbacks BeforeModel and BeforeTool, put the processor Conversation before that
// of the exporter, and run with the context that WithGuard returns.
package adk

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/genai"
	"loopguard"
)

type (
	guarded      struct{}
	conversation struct{}
)

// WithGuard says which guard a run asks, and that its session is the conversation of the run.
func WithGuard(ctx context.Context, guard *loopguard.Guard) context.Context {
	return context.WithValue(WithConversation(ctx, guard.Session), guarded{}, guard)
}

// BeforeModel ends a run that is aborted, and puts hints before the model.
func BeforeModel(ctx agent.Context, request *model.LLMRequest) (*model.LLMResponse, error) {
	guard, ok := ctx.Value(guarded{}).(*loopguard.Guard)
	if !ok {
		return nil, nil
	}
	hint, err := guard.Gate(ctx)
	if hint != "" {
		request.Contents = append(request.Contents, genai.NewContentFromText(hint, genai.RoleUser))
	}
	return nil, err
}

// BeforeTool refuses calls that are denied.
func BeforeTool(ctx agent.Context, called tool.Tool, arguments map[string]any) (map[string]any, error) {
	guard, ok := ctx.Value(guarded{}).(*loopguard.Guard)
	if !ok {
		return nil, nil
	}
	if refused := guard.Refuses(ctx, called.Name(), arguments); refused != nil {
		return map[string]any{"error": refused.Error()}, nil
	}
	return nil, nil
}

// WithConversation says which conversation a run belongs to; WithGuard does, too.
func WithConversation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, conversation{}, id)
}

// Conversation is a span processor: it puts the id of the conversation on each span. ADK writes it
// only on the span that ends last.
type Conversation struct{}

func (Conversation) OnStart(ctx context.Context, span sdktrace.ReadWriteSpan) {
	if id, ok := ctx.Value(conversation{}).(string); ok {
		span.SetAttributes(attribute.String("gen_ai.conversation.id", id))
	}
}

func (Conversation) OnEnd(sdktrace.ReadOnlySpan)      {}
func (Conversation) Shutdown(context.Context) error   { return nil }
func (Conversation) ForceFlush(context.Context) error { return nil }
