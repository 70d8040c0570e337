package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// agent runs reloads: at each tick the one that is due, or at once by force. It
// remembers the failed ones and the last success.
type agent struct {
	haproxy *haproxy
	paths   Dirs

	// mu is held while a reload runs, so that other requests wait for its end.
	mu     sync.Mutex
	next   string
	fault  Fault // of the request that asked for next
	index  int
	failed []reloadState
	last   reloadState
}

type reloadState struct {
	ID        string `json:"id,omitempty"`
	Status    string `json:"status"`
	Response  string `json:"response,omitempty"`
	Timestamp int64  `json:"reload_timestamp,omitempty"`
}

func newAgent(h *haproxy, paths Dirs) *agent { return &agent{haproxy: h, paths: paths} }

func (g *agent) run(ctx context.Context, delay time.Duration) {
	tick := time.NewTicker(delay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.mu.Lock()
			if g.next != "" && ctx.Err() == nil {
				_, _ = g.execute() // recorded
			}
			g.mu.Unlock()
		}
	}
}

// schedule returns the id of the reload that is due next, a new one if none is.
func (g *agent) schedule(ctx context.Context) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == "" {
		g.next = fmt.Sprintf("%s-%d", time.Now().Format(time.DateOnly), g.index)
		g.index++
	}
	if f := faultOf(ctx); f.kind != noFault {
		g.fault = f
	}
	return g.next
}

// execute runs the reload that is due and records it. It is called with mu held.
func (g *agent) execute() (string, error) {
	response, err := g.reload(g.fault)
	state := reloadState{ID: g.next, Status: "succeeded", Response: response, Timestamp: time.Now().Unix()}
	if err != nil {
		state.Status = "failed"
		g.failed = append(g.failed, state)
	} else {
		g.last = state
	}
	g.next, g.fault = "", Fault{}
	return response, err
}

// force reloads at once. It runs the one that is due if there is one; else it
// leaves no record.
func (g *agent) force(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var response string
	var err error
	if g.next != "" {
		g.fault = faultOf(ctx)
		response, err = g.execute()
	} else {
		response, err = g.reload(faultOf(ctx))
	}
	if err != nil {
		return failf(http.StatusBadRequest, "Reload failed: %s, %s", err, response)
	}
	return nil
}

// reload loads the file. When that fails, the file becomes the last known good one
// again, and nothing else does: not the memory, not the other files.
func (g *agent) reload(f Fault) (string, error) {
	response, err := g.attempt(f)
	if err != nil {
		if restored := copyFile(g.paths.lkg, g.paths.config); restored != nil {
			return response, errors.Join(err, restored)
		}
		return response, err
	}
	return response, copyFile(g.paths.config, g.paths.lkg)
}

func (g *agent) attempt(f Fault) (string, error) {
	switch {
	case f.kind == failReload, f.kind == certificateReload && f.log != "":
		return f.log, errReloadFailed
	case f.kind == masterSocketGone:
		return "", fmt.Errorf("cannot reload: %w", g.haproxy.noSocket())
	default:
		return g.haproxy.reload()
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, content)
}

// list returns all that is known.
func (g *agent) list() []reloadState {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := append([]reloadState{}, g.failed...)
	if g.last.ID != "" {
		all = append(all, g.last)
	}
	if g.next != "" {
		all = append(all, reloadState{ID: g.next, Status: "in_progress"})
	}
	return all
}

// find returns one reload. Of successes only the last is kept: whatever is older
// passes for one, even if it never was.
func (g *agent) find(id string) (reloadState, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id == g.next {
		return reloadState{Status: "in_progress"}, true
	}
	for _, f := range g.failed {
		if f.ID == id {
			return f, true
		}
	}
	switch {
	case g.last.ID == "":
		return reloadState{}, false
	case g.last.ID == id:
		return g.last, true
	case olderReload(id, g.last.ID):
		return reloadState{ID: id, Status: "succeeded"}, true
	}
	return reloadState{}, false
}

// olderReload compares two ids as the API does: an earlier day, or else a smaller
// count, whatever the day.
func olderReload(id, than string) bool {
	day, n, ok := splitReloadID(id)
	lastDay, last, _ := splitReloadID(than)
	return ok && (day.Before(lastDay) || n < last)
}

func splitReloadID(id string) (day time.Time, n int64, ok bool) {
	cut := strings.LastIndexByte(id, '-')
	if cut < 0 {
		return day, 0, false
	}
	n, errN := strconv.ParseInt(id[cut+1:], 10, 64)
	day, errDay := time.Parse(time.DateOnly, id[:cut])
	return day, n, errN == nil && errDay == nil
}

func (a *api) getReloads(w http.ResponseWriter, _ *http.Request) error {
	writeBody(w, http.StatusOK, a.agent.list())
	return nil
}

func (a *api) getReload(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	state, ok := a.agent.find(id)
	if !ok {
		return failf(http.StatusNotFound, "Reload with ID %s does not exist", id)
	}
	writeBody(w, http.StatusOK, state)
	return nil
}
