// Says what the guard answers, with a line for each question: go run . HINTED DENIED ABORTED LATER.
package main

import (
	"context"
	"fmt"
	"os"

	"loopguard"
)

func main() {
	ctx, sessions := context.Background(), os.Args[1:]
	hinted, denied := loopguard.New(sessions[0]), loopguard.New(sessions[1])
	for range 2 {
		hint, _ := hinted.Gate(ctx)
		fmt.Println("hint:", hint)
	}
	for _, arguments := range []any{`{"q": "x"}`, map[string]string{"q": "y"}, nil} {
		fmt.Println("refused:", denied.Refuses(ctx, "search", arguments))
	}
	fmt.Println("refused:", denied.Refuses(ctx, "write", nil))
	_, err := loopguard.New(sessions[2]).Gate(ctx)
	fmt.Println("stopped:", err)
	later, cancel := loopguard.New(sessions[3]).Context(ctx)
	defer cancel()
	fmt.Println("works")
	<-later.Done()
	fmt.Println("ended:", context.Cause(later))
}
