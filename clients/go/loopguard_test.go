package loopguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// answering returns a guard of "a b&c" whose server answers as it is told, and what it warns of.
func answering(t *testing.T, answer http.HandlerFunc) (*Guard, func() []string) {
	t.Helper()
	told.Clear()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	var mu sync.Mutex
	var warned []string
	guard := &Guard{Session: "a b&c", URL: server.URL + "/", Token: "secret", Warn: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, text)
	}}
	return guard, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return warned
	}
}

func control(action, version, hint string) string {
	stops := action == "deny" || action == "pause" || action == "abort"
	return fmt.Sprintf(`{"session": "a b&c", "action": %q, "stops": %t, "reason": "why", "hint": %q,
		"by": null, "until": null, "decision": {"tool": "search"}, "version": %q}`,
		action, stops, hint, version)
}

func says(text string) http.HandlerFunc {
	return func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, text) }
}

func TestItAsksWithSessionAndToken(t *testing.T) {
	guard, _ := answering(t, func(to http.ResponseWriter, asked *http.Request) {
		if asked.URL.Path != "/v1/session/control" || asked.URL.Query().Get("id") != "a b&c" ||
			asked.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked %s with %s", asked.URL, asked.Header)
		}
		fmt.Fprint(to, control("allow", "1", ""))
	})
	if hint, err := guard.Gate(context.Background()); hint != "" || err != nil {
		t.Error(hint, err)
	}
}

func TestAHintComesOncePerVersion(t *testing.T) {
	version := "1"
	guard, _ := answering(t, func(to http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(to, control("hint", version, "look elsewhere"))
	})
	for _, want := range []string{"look elsewhere", ""} {
		if hint, err := guard.Gate(context.Background()); hint != want || err != nil {
			t.Errorf("%q, %v", hint, err)
		}
	}
	version = "2"
	if hint, _ := guard.Gate(context.Background()); hint != "look elsewhere" {
		t.Errorf("%q", hint)
	}
}

func TestItAsksAboutACall(t *testing.T) {
	guard, _ := answering(t, func(to http.ResponseWriter, asked *http.Request) {
		called, _ := io.ReadAll(asked.Body)
		action := "deny"
		if string(called) != `{"arguments":{"q":"x"},"tool":"search"}` {
			action = "allow"
		}
		if asked.Method != http.MethodPost || asked.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s with %s", asked.Method, asked.Header)
		}
		fmt.Fprint(to, control(action, "1", "not again"))
	})
	var refused *Refused
	search := map[string]string{"q": "x"}
	if err := guard.Refuses(context.Background(), "search", search); !errors.As(err, &refused) ||
		err.Error() != "not again" || refused.Tool != "search" || refused.Control.Action != "deny" {
		t.Error(err)
	}
	for _, unknown := range []any{nil, func() {}} {
		if err := guard.Refuses(context.Background(), "search", unknown); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAbortStops(t *testing.T) {
	guard, _ := answering(t, says(control("abort", "1", "")))
	var stopped *Stopped
	if _, err := guard.Gate(context.Background()); !errors.As(err, &stopped) ||
		err.Error() != "why (session a b&c aborted)" {
		t.Error(err)
	}
	if err := guard.Refuses(context.Background(), "write", nil); err == nil {
		t.Error("a call of an aborted session is made")
	}
	ctx, cancel := guard.Context(context.Background())
	defer cancel()
	<-ctx.Done()
	if !errors.As(context.Cause(ctx), &stopped) {
		t.Error(context.Cause(ctx))
	}
	if _, err := guard.Gate(ctx); !errors.As(err, &stopped) {
		t.Error(err)
	}
	if err := guard.Refuses(ctx, "write", nil); !errors.As(err, &stopped) {
		t.Error(err)
	}
}

func TestAGateWaitsForTheEndOfAPause(t *testing.T) {
	var asked atomic.Int32
	guard, _ := answering(t, func(to http.ResponseWriter, of *http.Request) {
		switch asked.Add(1) {
		case 1:
			fmt.Fprint(to, control("pause", "1", ""))
		case 2: // a server that restarts ends no pause
			to.WriteHeader(http.StatusServiceUnavailable)
		default:
			if of.URL.Query().Get("since") != "1" || of.URL.Query().Get("wait") != "30" {
				t.Error(of.URL)
			}
			fmt.Fprint(to, control("hint", "2", "go on with b"))
		}
	})
	if hint, err := guard.Gate(context.Background()); hint != "go on with b" || err != nil {
		t.Error(hint, err)
	}
}

func TestAContextEndsAPause(t *testing.T) {
	guard, _ := answering(t, says(control("pause", "1", "")))
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	if _, err := guard.Gate(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestACancelledContextIsNoProblemOfTheServer(t *testing.T) {
	guard, warned := answering(t, says(control("allow", "1", "")))
	ctx, cancel := guard.Context(context.Background())
	cancel()
	<-ctx.Done()
	if _, err := guard.Gate(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(warned()) > 0 {
		t.Error(warned())
	}
}

func TestAServerThatCannotBeReachedStopsNobodyAndIsToldOnce(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"401":               func(to http.ResponseWriter, _ *http.Request) { to.WriteHeader(http.StatusUnauthorized) },
		"no control":        says(`{"action": 7}`),
		"of a session":      says("\x1b[2J"),
		"no control of":     says(`{"stops": true}`),
		"goes on unguarded": says(""),
	}
	for part, answer := range answers {
		guard, warned := answering(t, answer)
		for range 3 {
			if hint, err := guard.Gate(context.Background()); hint != "" || err != nil {
				t.Error(part, hint, err)
			}
			if err := guard.Refuses(context.Background(), "search", nil); err != nil {
				t.Error(part, err)
			}
		}
		if got := warned(); len(got) != 1 || !strings.Contains(got[0], part) || strings.Contains(got[0], "\x1b") {
			t.Errorf("%s: %q", part, got)
		}
	}
	guard, warned := answering(t, says(""))
	for _, guard.URL = range []string{"http://127.0.0.1:1", "http://127.0.0.1:1", "::"} {
		if _, err := guard.Gate(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if got := warned(); len(got) != 2 || strings.Contains(got[0], "a+b") {
		t.Errorf("%q", got)
	}
}

func TestWhoeverNamesNoSessionIsTold(t *testing.T) {
	guard, warned := answering(t, says(`{"action": "abort", "version": "1"}`))
	guard.Session = ""
	if _, err := guard.Gate(context.Background()); err != nil {
		t.Error(err)
	}
	if got := warned(); len(got) != 1 || !strings.Contains(got[0], "no session") {
		t.Errorf("%q", got)
	}
}

func TestAWarningOfTheServerIsToldOnce(t *testing.T) {
	guard, warned := answering(t, says(`{"action": "allow", "version": "1", "warning": "too late"}`))
	for range 2 {
		guard.Control(context.Background())
	}
	if got := warned(); len(got) != 1 || got[0] != "otel-loopguard: too late" {
		t.Errorf("%q", got)
	}
}

func ExampleGuard() {
	guard := New("chat-1")
	ctx, cancel := guard.Context(context.Background()) // ends with an abort
	defer cancel()
	for step := 0; step < 50; step++ {
		hint, err := guard.Gate(ctx)
		if err != nil {
			fmt.Println("stopped:", err)
			return
		}
		if hint != "" {
			fmt.Println("for the model:", hint)
		}
		if err := guard.Refuses(ctx, "search", map[string]string{"q": "x"}); err != nil {
			fmt.Println("for the model, in place of the result:", err)
			continue
		}
		// … make the call, with ctx
	}
}
