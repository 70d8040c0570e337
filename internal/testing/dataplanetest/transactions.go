package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxTransactions is the API's default limit on open ones.
const maxTransactions = 20

type transactionState struct {
	ID      string `json:"id"`
	Version int64  `json:"_version,omitempty"` // of one in progress
	Status  string `json:"status"`
}

// folders maps the states of transactions to the folders in which their files lie.
var folders = map[string]string{"in_progress": "", "failed": "failed", "outdated": "outdated"}

func (a *api) postTransaction(w http.ResponseWriter, r *http.Request) error {
	version, err := a.queryVersion(r)
	if err != nil {
		return err
	}
	if version == 0 {
		return a.schemaFailure(602, "version in query is required", "parameter \"version\" in query has an error: value is required but missing")
	}
	if len(a.transactionsIn("in_progress")) >= maxTransactions {
		return failf(http.StatusTooManyRequests,
			"cannot start a new transaction, reached the maximum amount of %d active transactions available", maxTransactions)
	}
	if version != a.currentVersion() {
		return a.versionMismatch(version)
	}
	doc, err := a.copyOfMemory()
	if err != nil {
		return err
	}
	id := newID()
	if err := a.keepOpen(id, doc); err != nil {
		return err
	}
	writeBody(w, http.StatusCreated, transactionState{ID: id, Version: version, Status: "in_progress"})
	return nil
}

// keepOpen holds a transaction in memory and on disk.
func (a *api) keepOpen(id string, doc document) error {
	text, err := doc.render()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.paths.Transactions, 0o755); err != nil {
		return err
	}
	if err := writeFile(a.transactionFile("", id), []byte(text)); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.transactions[id] = doc
	return nil
}

func (a *api) getTransactions(w http.ResponseWriter, r *http.Request) error {
	states := []string{"in_progress", "failed", "outdated"}
	if want := r.URL.Query().Get("status"); want != "" {
		if want != "failed" && want != "in_progress" {
			return a.schemaFailure(606, "status in query should be one of [failed in_progress]",
				"parameter \"status\" in query has an error: value is not one of the allowed values [\"failed\",\"in_progress\"]")
		}
		states = []string{want}
	}
	all := []transactionState{}
	for _, state := range states {
		all = append(all, a.transactionsIn(state)...)
	}
	writeBody(w, http.StatusOK, all)
	return nil
}

// transactionsIn lists the transactions in the folder of one state.
func (a *api) transactionsIn(state string) []transactionState {
	prefix := filepath.Base(a.paths.config) + "."
	entries, _ := os.ReadDir(filepath.Join(a.paths.Transactions, folders[state])) // absent: none
	var found []transactionState
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), prefix); ok && e.Type().IsRegular() {
			found = append(found, transactionState{id, a.transactionVersion(state, id), state})
		}
	}
	return found
}

func (a *api) transactionVersion(state, id string) int64 {
	if state != "in_progress" {
		return 0 // the API does not say it
	}
	text, err := os.ReadFile(a.transactionFile(folders[state], id))
	if err != nil {
		return 0
	}
	doc, err := parseDocument(string(text))
	if err != nil {
		return 0
	}
	return doc.version()
}

// findTransaction returns the file of a transaction in any state, or "".
func (a *api) findTransaction(id string) string {
	for _, state := range []string{"outdated", "failed", "in_progress"} {
		path := a.transactionFile(folders[state], filepath.Base(id))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func (a *api) transaction(id string) (transactionState, error) {
	for _, state := range []string{"outdated", "failed", "in_progress"} {
		all := a.transactionsIn(state)
		if i := slices.IndexFunc(all, func(t transactionState) bool { return t.ID == id }); i >= 0 {
			return all[i], nil
		}
	}
	return transactionState{}, failf(http.StatusNotFound,
		"transaction does not exist: transaction %s does not exist", id)
}

func (a *api) getTransaction(w http.ResponseWriter, r *http.Request) error {
	t, err := a.transaction(r.PathValue("id"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, t)
	return nil
}

func (a *api) deleteTransaction(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	path := a.findTransaction(id)
	if path == "" {
		return failf(http.StatusNotFound, "transaction does not exist: transaction file %s does not exist", id)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	a.close(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) commitTransaction(w http.ResponseWriter, r *http.Request) error {
	t, err := a.transaction(r.PathValue("id"))
	if err != nil {
		return err
	}
	if t.Status != "in_progress" {
		return failf(http.StatusNotAcceptable, "transaction %s is %s and cannot be committed", t.ID, t.Status)
	}
	doc, open := a.openTransaction(t.ID)
	if !open {
		return failf(http.StatusNotFound, "transaction does not exist: transaction %s does not exist", t.ID)
	}
	err = a.commit(r.Context(), t.ID, doc, false)
	a.close(t.ID)
	if err != nil {
		return err
	}
	a.outdateOthers(t.Version)
	t.Status = "success"
	if flag(r, "force_reload") {
		if err := a.agent.force(r.Context()); err != nil {
			return err
		}
		writeBody(w, http.StatusOK, t)
		return nil
	}
	w.Header().Set("Reload-ID", a.agent.schedule(r.Context()))
	writeBody(w, http.StatusAccepted, t)
	return nil
}

func (a *api) openTransaction(id string) (document, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	doc, ok := a.transactions[id]
	return doc, ok
}

func (a *api) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.transactions, id)
}

// outdateOthers sets aside transactions that began with a version that is no longer current.
func (a *api) outdateOthers(version int64) {
	for _, t := range a.transactionsIn("in_progress") {
		if t.Version <= version {
			a.setAside("outdated", t.ID)
			a.close(t.ID)
		}
	}
}

// change applies a structured change: to the transaction that the request names,
// or to the configuration itself. inTransaction says which it was.
func (a *api) change(r *http.Request, apply func(document) error) (inTransaction bool, err error) {
	version, err := a.queryVersion(r)
	if err != nil {
		return false, err
	}
	id := r.URL.Query().Get("transaction_id")
	if id == "" {
		return false, a.edit(r.Context(), version, apply)
	}
	if version != 0 {
		return true, failf(http.StatusBadRequest, "version and transaction specified: ")
	}
	doc, ok := a.openTransaction(id)
	if !ok {
		return true, failf(http.StatusBadRequest, "transaction does not exist: %s", id)
	}
	if err := apply(doc); err != nil {
		return true, err
	}
	return true, a.keepOpen(id, doc)
}

// agent runs reloads: at each tick the one that is due, or at once by force. It remembers the failed ones and
// the last success.
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

// force reloads at once. If a reload is due, it runs that one; otherwise it leaves no record.
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

// reload loads the file. If that fails, the file becomes the last known good one again, but the memory and the
// other files stay.
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

// find returns one reload. Only the last success is kept: every older id counts as a success, even if it never
// existed.
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
