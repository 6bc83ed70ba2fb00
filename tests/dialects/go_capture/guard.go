package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Guard asks for the control of one session. A server that does not answer stops nobody.
type Guard struct {
	at, token string
	told      atomic.Value // version of the last hint
}

var unguarded sync.Once

// NewGuard takes the server's address and token from LOOPGUARD_URL and LOOPGUARD_TOKEN.
func NewGuard(session string) *Guard {
	server := cmp.Or(os.Getenv("LOOPGUARD_URL"), "http://127.0.0.1:4318")
	at := strings.TrimRight(server, "/") + "/v1/session/control?id=" + url.QueryEscape(session)
	return &Guard{at: at, token: os.Getenv("LOOPGUARD_TOKEN")}
}

// Gate asks before a step, and waits while the session is paused. An error ends the run; a hint is
// for the model, and comes once.
func (g *Guard) Gate(ctx context.Context) (hint string, err error) {
	found := g.ask(ctx, "", 2*time.Second)
	for found.Action == "pause" && ctx.Err() == nil {
		found = g.ask(ctx, "&wait=30&since="+found.Version, 35*time.Second)
	}
	if found.Action == "abort" {
		return "", errors.New(found.Reason)
	}
	if found.Hint != "" && g.told.Swap(found.Version) != found.Version {
		hint = found.Hint
	}
	return hint, ctx.Err()
}

// Refuses asks before a call: unless it is empty, the model gets the reason in place of the result.
func (g *Guard) Refuses(ctx context.Context, tool string) (reason string) {
	found := g.ask(ctx, "", 2*time.Second)
	if !found.Stops || (found.Action == "deny" && found.Decision != nil && found.Decision.Tool != tool) {
		return ""
	}
	return cmp.Or(found.Hint, found.Reason)
}

type control struct {
	Action, Reason, Hint, Version string
	Stops                         bool
	Decision                      *struct{ Tool string }
}

func (g *Guard) ask(ctx context.Context, query string, limit time.Duration) control {
	found, err := g.get(ctx, query, limit)
	if err != nil {
		if ctx.Err() == nil {
			unguarded.Do(func() { log.Printf("otel-loopguard: %v; the run goes on unguarded", err) })
		}
		return control{}
	}
	return found
}

func (g *Guard) get(ctx context.Context, query string, limit time.Duration) (found control, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.at+query, nil)
	if err != nil {
		return found, err
	}
	if g.token != "" {
		request.Header.Set("Authorization", "Bearer "+g.token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return found, fmt.Errorf("%s answered %s", request.URL.Host, response.Status)
	}
	return found, json.NewDecoder(response.Body).Decode(&found)
}
