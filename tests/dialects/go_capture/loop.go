package main

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"loopguard"
)

// Called makes a call, unless it is refused, and writes its span.
func Called(
	ctx context.Context, tracer trace.Tracer, guard *loopguard.Guard, tool, arguments string,
	call func() (string, error),
) (result string, err error) {
	ctx, span := tracer.Start(ctx, "execute_tool "+tool, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.conversation.id", guard.Session),
		attribute.String("gen_ai.tool.name", tool),
		attribute.String("gen_ai.tool.call.arguments", arguments),
	))
	defer span.End()
	if err = guard.Refuses(ctx, tool, arguments); err != nil {
		result = err.Error()
		span.SetAttributes(attribute.String("error.type", "loopguard_deny"))
	} else if result, err = call(); err != nil {
		result = err.Error()
		span.SetAttributes(attribute.String("error.type", "tool_error"))
	}
	span.SetAttributes(attribute.String("gen_ai.tool.call.result", result))
	return result, err
}
