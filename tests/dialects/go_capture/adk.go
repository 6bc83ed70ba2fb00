package main

import (
	"context"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/genai"
)

type guarded struct{}

// WithGuard says which guard a run asks.
func WithGuard(ctx context.Context, guard *Guard) context.Context {
	return context.WithValue(ctx, guarded{}, guard)
}

// BeforeModel ends a run that is aborted, and puts hints before the model.
func BeforeModel(ctx agent.Context, request *model.LLMRequest) (*model.LLMResponse, error) {
	guard, ok := ctx.Value(guarded{}).(*Guard)
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
func BeforeTool(ctx agent.Context, called tool.Tool, _ map[string]any) (map[string]any, error) {
	guard, ok := ctx.Value(guarded{}).(*Guard)
	if !ok {
		return nil, nil
	}
	if reason := guard.Refuses(ctx, called.Name()); reason != "" {
		return map[string]any{"error": reason}, nil
	}
	return nil, nil
}
