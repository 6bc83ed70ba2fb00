package main

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Called makes a call of a tool, unless it is refused, and writes the span that the guard reads.
func Called(
	ctx context.Context, tracer trace.Tracer, guard *Guard, session, tool, arguments string,
	call func() (string, error),
) string {
	ctx, span := tracer.Start(ctx, "execute_tool "+tool, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.conversation.id", session),
		attribute.String("gen_ai.tool.name", tool),
		attribute.String("gen_ai.tool.call.arguments", arguments),
	))
	defer span.End()
	result, failed := guard.Refuses(ctx, tool), "loopguard_deny"
	if result == "" {
		var err error
		if result, err = call(); err != nil {
			result, failed = err.Error(), "tool_error"
		} else {
			failed = ""
		}
	}
	if failed != "" {
		span.SetAttributes(attribute.String("error.type", failed))
	}
	span.SetAttributes(attribute.String("gen_ai.tool.call.result", result))
	return result
}
