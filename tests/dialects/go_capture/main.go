// An agent of ADK whose model is scripted: go run . OTLP_URL SESSION REPEATS.
// With REPEATS it asks for one call as often, else for those of the script. With LOOPGUARD_URL it
// asks the guard. go run . own SESSION is a loop without a framework, told where to by variables.
package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
	"loopguard"
	"loopguard/adk"
)

// A step of the loop without a framework, whose model takes a moment.
const stepTakes = 400 * time.Millisecond

type call struct {
	name string
	args map[string]any
}

var (
	paris  = call{"search", map[string]any{"query": "weather in Paris"}}
	fails  = call{"broken", map[string]any{"x": 1}}
	script = [][]call{{paris}, {paris}, {paris}, {fails}, {paris, paris}}
	ids    int
)

// Asks for the calls of the script, then says that it is done.
type scripted struct{ turn int }

func (*scripted) Name() string { return "scripted-model" }

func (m *scripted) GenerateContent(
	context.Context, *model.LLMRequest, bool,
) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		content := genai.NewContentFromText("I found nothing.", genai.RoleModel)
		if m.turn < len(script) {
			content = genai.NewContentFromText("Let me look.", genai.RoleModel)
			for _, one := range script[m.turn] {
				ids++
				id := fmt.Sprintf("call_%d", ids)
				asked := &genai.FunctionCall{ID: id, Name: one.name, Args: one.args}
				content.Parts = append(content.Parts, &genai.Part{FunctionCall: asked})
			}
		}
		m.turn++
		usage := &genai.GenerateContentResponseUsageMetadata{
			PromptTokenCount: int32(10 * m.turn), CandidatesTokenCount: 5,
			TotalTokenCount: int32(10*m.turn + 5),
		}
		yield(&model.LLMResponse{
			Content: content, UsageMetadata: usage, FinishReason: genai.FinishReasonStop,
		}, nil)
	}
}

type query struct {
	Query string `json:"query"`
}

type number struct {
	X int `json:"x"`
}

type found struct {
	Found string `json:"found"`
}

func search(_ agent.Context, asked query) (found, error) {
	return found{"no results for " + asked.Query}, nil
}

func broken(_ agent.Context, asked number) (found, error) {
	return found{}, fmt.Errorf("broken backend for x=%d", asked.X)
}

func own(ctx context.Context, session string) {
	traces := must(otlptracehttp.New(ctx))
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(traces))
	guard, tracer := loopguard.New(session), spans.Tracer("my-agent")
	ctx, cancel := guard.Context(ctx)
	defer cancel()
	for range 300 {
		hint, err := guard.Gate(ctx)
		if err != nil {
			fmt.Println("stopped:", err)
			return
		}
		if hint != "" {
			fmt.Println("hint:", hint)
		}
		var refused *loopguard.Refused
		_, err = Called(ctx, tracer, guard, "search", `{"q": "x"}`, func() (string, error) {
			return "nothing was found for this query", nil
		})
		if errors.As(err, &refused) {
			fmt.Println("refused:", err)
		}
		time.Sleep(stepTakes)
	}
}

func exporting(ctx context.Context, url string) *sdktrace.TracerProvider {
	named := resource.NewSchemaless(attribute.String("service.name", "agents"))
	traces := must(otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url+"/v1/traces")))
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(adk.Conversation{}), sdktrace.WithSyncer(traces),
		sdktrace.WithResource(named))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	if os.Args[1] == "own" {
		own(ctx, os.Args[2])
		return
	}
	url, id := os.Args[1], os.Args[2]
	if repeats, _ := strconv.Atoi(os.Args[3]); repeats > 0 {
		script = slices.Repeat([][]call{{paris}}, repeats)
	}
	spans := exporting(ctx, url)
	otel.SetTracerProvider(spans)

	ctx = adk.WithConversation(ctx, id)
	if os.Getenv("LOOPGUARD_URL") != "" {
		ctx = adk.WithGuard(ctx, loopguard.New(id))
	}
	helper := must(llmagent.New(llmagent.Config{
		Name:        "helper",
		Model:       &scripted{},
		Instruction: "Find it.",

		BeforeModelCallbacks: []llmagent.BeforeModelCallback{adk.BeforeModel},
		BeforeToolCallbacks:  []llmagent.BeforeToolCallback{adk.BeforeTool},
		Tools: []tool.Tool{
			must(functiontool.New(
				functiontool.Config{Name: "search", Description: "Searches."}, search)),
			must(functiontool.New(
				functiontool.Config{Name: "broken", Description: "Fails."}, broken)),
		},
	}))
	sessions := session.InMemoryService()
	asks := &session.CreateRequest{AppName: "agents", UserID: "user", SessionID: id}
	must(sessions.Create(ctx, asks))
	run := must(runner.New(runner.Config{
		AppName: "agents", Agent: helper, SessionService: sessions,
	}))
	prompt := genai.NewContentFromText("What is the weather in Paris?", genai.RoleUser)
	for event, err := range run.Run(ctx, "user", id, prompt, agent.RunConfig{}) {
		if err != nil {
			fmt.Println("stopped:", err)
			continue
		}
		for _, part := range event.Content.Parts {
			if part.FunctionResponse != nil && part.FunctionResponse.Response["error"] != nil {
				fmt.Printf("refused: %v\n", part.FunctionResponse.Response["error"])
			}
		}
	}
	must(0, spans.Shutdown(ctx))
}
