package dataplanetest

import (
	"net/http"
	"slices"
	"sync"
)

// Request is one request that came in.
type Request struct {
	Method string
	Path   string
	Query  string
	// Status of the answer; 0 while there is none, and for ever where the
	// connection was cut.
	Status int
}

type requestLog struct {
	mu   sync.Mutex
	list []Request
}

// begin records a request and returns what completes the record.
func (l *requestLog) begin(r *http.Request) func(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.list)
	l.list = append(l.list, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery})
	return func(status int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list[n].Status = status
	}
}

func (l *requestLog) all() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// observed records each request and has it meet the failure that waits for it.
func (i *Instance) observed(a life) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &recorded{ResponseWriter: w, done: i.requests.begin(r)}
		f := i.faults.take(r.Method, r.URL.Path)
		if f.kind == answer {
			f.serve(&versioned{ResponseWriter: seen, version: a.currentVersion}, r, nil)
			return
		}
		f.serve(seen, r, a.ServeHTTP)
	})
}

// recorded notes the status of an answer.
type recorded struct {
	http.ResponseWriter
	done func(status int)
}

func (r *recorded) WriteHeader(status int) {
	r.done(status)
	r.ResponseWriter.WriteHeader(status)
}
