package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// How old what a compiler said may be, how long it may take to say it, and how long the first page waits for that.
const (
	compilerAge     = 10 * time.Second
	compilerTimeout = 10 * time.Second
	firstAnswer     = 2 * time.Second
)

// finding is one fault of the inputs, as the compiler's /status has it.
type finding struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	File      string    `json:"file"`
	Line      int       `json:"line"`
	Field     string    `json:"field"`
	Reason    string    `json:"reason"`
	Hint      string    `json:"hint"`
	Since     time.Time `json:"since"`
}

// compiled is what a compiler says of itself, as far as the page shows it.
type compiled struct {
	Head struct {
		Snapshot snapshots.ID `json:"snapshot"`
	} `json:"head"`
	Found    []finding `json:"found"`
	Withheld int       `json:"withheld"` // findings that it does not tell this client
}

// compiler asks a compiler for its status: once, however many look, and nobody waits for it but who comes first.
type compiler struct {
	ask     func(ctx context.Context) (json.RawMessage, error)
	ctx     context.Context //nolint:containedctx // of the server, for questions that outlive who asked
	changed func()

	mu     sync.Mutex
	last   compiled
	err    error         // of the last question
	asked  time.Time     // when it ended
	asking chan struct{} // closed when the question ends that is under way, nil for none
}

func newCompiler(ctx context.Context, ask func(context.Context) (json.RawMessage, error), changed func()) *compiler {
	return &compiler{ask: ask, ctx: ctx, changed: changed}
}

// status returns what the compiler said last. Known is false if none was asked, or has answered yet.
func (c *compiler) status(ctx context.Context) (said compiled, known bool, err error) {
	if c == nil || c.ask == nil {
		return compiled{}, false, nil
	}
	c.mu.Lock()
	if c.asking == nil && time.Since(c.asked) > compilerAge {
		c.asking = make(chan struct{})
		go c.once(c.asking)
	}
	asking, first := c.asking, c.asked.IsZero()
	c.mu.Unlock()
	if first && ctx.Value(nowait{}) == nil {
		select {
		case <-asking:
		case <-ctx.Done():
		case <-time.After(firstAnswer):
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, !c.asked.IsZero() && c.err == nil, c.err
}

// once asks once.
func (c *compiler) once(done chan struct{}) {
	ctx, cancel := context.WithTimeout(c.ctx, compilerTimeout)
	defer cancel()
	text, err := c.ask(ctx)
	var said compiled
	if err == nil {
		if err = json.Unmarshal(text, &said); err != nil {
			err = fmt.Errorf("read the status of the compiler: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	other := (err == nil) != (c.err == nil) || c.asked.IsZero() || len(said.Found) != len(c.last.Found) || said.Head != c.last.Head
	c.err, c.asked, c.asking = err, time.Now(), nil
	if err == nil {
		c.last = said
	}
	close(done)
	if other {
		c.changed()
	}
}
