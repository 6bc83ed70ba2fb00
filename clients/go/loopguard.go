// Package loopguard asks `otel-loopguard serve` what an agent may do. It needs the standard library
// only.
//
// The server judges the spans that the agent exports; see docs/other-languages.md. The package
// speaks two operations of its OpenAPI document (GET /v1/openapi.json): `control_by_query` and
// `control_of_call_by_query`.
//
// A server that cannot be reached stops nobody. Problems are logged, once of each kind in a
// process.
package loopguard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	askFor   = 2 * time.Second  // a server that is near answers within milliseconds
	waitFor  = 30 * time.Second // of the 60 that the server allows: proxies often cut after 60
	pollFor  = waitFor + 5*time.Second
	retry    = time.Second
	early    = 100 * time.Millisecond // between questions, if whatever answers does not wait
	patience = 30 * time.Second       // without an answer in a pause: longer than a server's restart
	maxBytes = 1 << 20                // an answer has a few hundred
)

// Control is what the runtime of a session should do at this moment. Texts are empty where the
// server has none.
type Control struct {
	Session  string    `json:"session"`
	Action   string    `json:"action"`   // allow, hint, steer, ask, deny, pause or abort
	Stops    bool      `json:"stops"`    // true for deny, pause and abort
	Reason   string    `json:"reason"`   // why, without content of the calls
	Hint     string    `json:"hint"`     // what to tell the model
	By       string    `json:"by"`       // "policy", or the name of a person
	Until    int64     `json:"until"`    // when it ends by itself, in nanoseconds since the epoch; or 0
	Decision *Decision `json:"decision"` // what it follows from; nil if nothing, or another worker knows
	Warning  string    `json:"warning"`  // what keeps the session from being guarded well
	Version  string    `json:"version"`  // another one after every change
}

// Decision is what a detector found.
type Decision struct {
	ID         string  `json:"id"`
	Detector   string  `json:"detector"`
	Rule       string  `json:"rule"`
	Message    string  `json:"message"`
	Tool       string  `json:"tool"`
	Step       int64   `json:"step"`
	Count      float64 `json:"count"`
	Confidence float64 `json:"confidence"`
	Shadow     bool    `json:"shadow"`
}

// Stopped is the error of a session that is aborted: its run should end.
type Stopped struct{ Control Control }

func (s *Stopped) Error() string {
	return fmt.Sprintf("%s (session %s aborted)", s.Control.Reason, s.Control.Session)
}

// Refused is the error of a call that must not be made. The model gets its text in place of the
// result.
type Refused struct {
	Tool    string
	Control Control
}

func (r *Refused) Error() string {
	return cmp.Or(r.Control.Hint, r.Control.Reason, "refused")
}

// Guard asks for the control of one session. Set its fields before the first question; then it may
// be used by several goroutines.
type Guard struct {
	Session string       // the conversation id of its spans, else their trace id in hex
	URL     string       // address of the server
	Token   string       // of the tenant; may be empty
	Client  *http.Client // http.DefaultClient if it is nil
	Warn    func(string) // takes what goes wrong; log.Print if it is nil

	mu     sync.Mutex
	hinted string // version of the last hint
}

// New returns the guard of a session, with the server's address from LOOPGUARD_URL (by default
// http://127.0.0.1:4318) and the token from LOOPGUARD_TOKEN.
func New(session string) *Guard {
	return &Guard{
		Session: session,
		URL:     cmp.Or(os.Getenv("LOOPGUARD_URL"), "http://127.0.0.1:4318"),
		Token:   os.Getenv("LOOPGUARD_TOKEN"),
	}
}

// Gate asks before a step, and waits while the session is paused. The hint is for the model, and
// comes once; without one it is empty. The error is a *Stopped if the session is aborted, else that
// of the context.
func (g *Guard) Gate(ctx context.Context) (hint string, err error) {
	found, _ := g.ask(ctx, "", askFor, nil)
	for heard := time.Now(); found.Action == "pause" && ctx.Err() == nil; {
		next, ok := g.wait(ctx, found.Version)
		if ok {
			found, heard = next, time.Now()
		} else if time.Since(heard) > patience {
			break
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if found.Action == "abort" {
		return "", &Stopped{found}
	}
	return g.once(found), nil
}

// Refuses asks before a call of a tool. Its arguments are a value that JSON can have, or the text of
// one; without them (nil) the tool of a denied loop tells. The error is a *Refused, or that of the
// context; nil if the call may be made.
func (g *Guard) Refuses(ctx context.Context, tool string, arguments any) error {
	call, err := json.Marshal(map[string]any{"tool": tool, "arguments": arguments})
	if err != nil {
		call, _ = json.Marshal(map[string]any{"tool": tool})
	}
	found, _ := g.ask(ctx, "", askFor, call)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !found.Stops {
		return nil
	}
	return &Refused{tool, found}
}

// Control asks for the control. Where the server does not answer, everything is allowed.
func (g *Guard) Control(ctx context.Context) Control {
	found, _ := g.ask(ctx, "", askFor, nil)
	return found
}

// Context returns a context for model calls and tools, which ends when the session is aborted; its
// cause is a *Stopped then. It follows the flag until cancel is called.
func (g *Guard) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	go func() {
		version := "none"
		for ctx.Err() == nil {
			found, _ := g.wait(ctx, version)
			if found.Action == "abort" {
				end(&Stopped{found})
			}
			version = cmp.Or(found.Version, "none")
		}
	}()
	return ctx, func() { end(nil) }
}

// once returns the hint of a control, the first time that it is asked for.
func (g *Guard) once(found Control) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if found.Hint == "" || found.Version == g.hinted {
		return ""
	}
	g.hinted = found.Version
	return found.Hint
}

// wait asks for a change of a version, and takes its time before what is asked next.
func (g *Guard) wait(ctx context.Context, version string) (Control, bool) {
	begun, pause := time.Now(), time.Duration(0)
	query := fmt.Sprintf("&wait=%d&since=%s", waitFor/time.Second, url.QueryEscape(version))
	found, ok := g.ask(ctx, query, pollFor, nil)
	if !ok {
		pause = retry
	} else if time.Since(begun) < early {
		pause = early
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return found, ok
}

// ask returns the control, of a call if there is one, or one that allows; and whether the server
// answered.
func (g *Guard) ask(ctx context.Context, query string, limit time.Duration, call []byte) (Control, bool) {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, problem := g.get(inner, query, call)
	if problem != nil {
		if ctx.Err() == nil {
			g.warn(problem.kind, problem.text+"; the run goes on unguarded until that is mended")
		}
		return Control{Session: g.Session, Action: "allow"}, false
	}
	if found.Warning != "" {
		g.warn("warning", found.Warning)
	}
	return found, true
}

// A problem has a kind of which there are few, and a text that may differ each time.
type problem struct{ kind, text string }

func (g *Guard) get(ctx context.Context, query string, call []byte) (found Control, _ *problem) {
	if g.Session == "" {
		return found, &problem{"session", "no session is named"}
	}
	at := strings.TrimRight(g.URL, "/") + "/v1/session/control?id=" + url.QueryEscape(g.Session) + query
	method := http.MethodGet
	if call != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(call))
	if err != nil {
		return found, &problem{"address", fmt.Sprintf("%q is no address of a server", g.URL)}
	}
	request.Header.Set("Content-Type", "application/json")
	if g.Token != "" {
		request.Header.Set("Authorization", "Bearer "+g.Token)
	}
	response, err := cmp.Or(g.Client, http.DefaultClient).Do(request)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err // without the session, which is part of the address
		}
		return found, &problem{"silent", fmt.Sprintf("%s: %v", request.URL.Host, err)}
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		why := "the server answered 401, as it takes no such token (LOOPGUARD_TOKEN)"
		return found, &problem{response.Status, why}
	}
	if response.StatusCode != http.StatusOK {
		return found, &problem{response.Status, "the server answered " + response.Status}
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxBytes)).Decode(&found)
	if err != nil || found.Action == "" || found.Version == "" {
		return Control{}, &problem{"answer", "the answer is no control of a session"}
	}
	return found, nil
}

var told sync.Map // kinds of problems

func (g *Guard) warn(kind, text string) {
	if _, before := told.LoadOrStore(kind, true); before {
		return
	}
	text = "otel-loopguard: " + strings.Map(func(sign rune) rune {
		if sign < ' ' || (sign >= 0x7f && sign < 0xa0) { // of a terminal: an answer may be anybody's
			return ' '
		}
		return sign
	}, text)
	if g.Warn != nil {
		g.Warn(text)
	} else {
		log.Print(text)
	}
}
