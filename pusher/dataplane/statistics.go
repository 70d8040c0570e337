package dataplane

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Process is how the API reaches the worker, and what the worker may use.
type Process struct {
	// Socket is the one that the API asks: the master socket where it was told one.
	Socket string
	// Version is HAProxy's.
	Version string
	// Sockets are the descriptors that the worker may need, Descriptors those that it
	// may have, and Connections its maxconn. 0 is not known.
	Sockets, Descriptors, Connections int
}

// Process asks the running worker. ErrRuntime says that the API could not.
func (c *Client) Process(ctx context.Context) (Process, error) {
	const op = "get runtime info"
	var body struct {
		Error      string
		RuntimeAPI string
		Info       *struct {
			Version string
			MaxSock int `json:"max_sock"`
			Ulimit  int `json:"ulimit_n"`
			MaxConn int `json:"max_conn"`
		}
	}
	a, err := c.getSmall(ctx, op, runtimePath+"info", &body)
	if err != nil {
		return Process{}, err
	}
	p := Process{Socket: body.RuntimeAPI}
	if body.Error != "" || body.Info == nil {
		return p, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no info"), kind: ErrRuntime}).redactedWith(c.access.Load())
	}
	p.Version, p.Sockets, p.Descriptors, p.Connections = body.Info.Version, body.Info.MaxSock, body.Info.Ulimit, body.Info.MaxConn
	return p, nil
}

// Clock returns the time of the API's machine, to the second; zero where it does not
// say it.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	a, err := c.do(ctx, call{op: "get info", method: http.MethodGet, path: "/info", ok: []int{http.StatusOK}, small: true})
	if err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // it is not told
	}
	return at, nil
}

// OpenTransaction begins a transaction, which writes a copy of the configuration into
// the API's transaction_dir.
func (c *Client) OpenTransaction(ctx context.Context, version int64) (Transaction, error) {
	const op = "open transaction"
	a, err := c.do(ctx, call{
		op: op, method: http.MethodPost, path: transactionsPath,
		query: url.Values{"version": {strconv.FormatInt(version, 10)}}, ok: []int{http.StatusCreated},
	})
	if err != nil {
		return Transaction{}, err
	}
	var t Transaction
	return t, decode(op, a, &t)
}

// FrontendStatistics are what the worker counted of a frontend since it started.
type FrontendStatistics struct {
	Name string
	// Requests and Errors, answers with 5xx, are those of HTTP; Connections are those
	// of clients.
	Requests, Errors, Connections int64
}

// BackendStatistics are how a backend stands.
type BackendStatistics struct {
	Name string
	// Down is set when it has servers and none of them is up.
	Down bool
	// Since is how long it has been so, or not, as far as this worker knows, in whole
	// seconds, and Downs counts how often it lost its last server.
	Since time.Duration
	Downs int64
	// Errors are answers with 5xx.
	Errors int64
}

// statisticsBody is an object of the answer, with what is used of it.
type statisticsBody struct {
	Name  string
	Stats struct {
		Status      string `json:"status"`
		Requests    int64  `json:"req_tot"`
		Errors      int64  `json:"hrsp_5xx"`
		Connections int64  `json:"stot"`
		Changed     int64  `json:"lastchg"`
		Downs       int64  `json:"chkdown"`
	}
}

// FrontendStatistics returns what the worker counted of each frontend. Two workers
// share no counters: each begins with 0.
func (c *Client) FrontendStatistics(ctx context.Context) ([]FrontendStatistics, error) {
	bodies, err := c.statistics(ctx, "frontend")
	out := make([]FrontendStatistics, 0, len(bodies))
	for _, b := range bodies {
		out = append(out, FrontendStatistics{b.Name, b.Stats.Requests, b.Stats.Errors, b.Stats.Connections})
	}
	return out, err
}

// BackendStatistics returns how the backends of the worker stand.
func (c *Client) BackendStatistics(ctx context.Context) ([]BackendStatistics, error) {
	bodies, err := c.statistics(ctx, "backend")
	out := make([]BackendStatistics, 0, len(bodies))
	for _, b := range bodies {
		out = append(out, BackendStatistics{
			Name: b.Name, Down: b.Stats.Status == "DOWN", Errors: b.Stats.Errors,
			Since: time.Duration(b.Stats.Changed) * time.Second, Downs: b.Stats.Downs,
		})
	}
	return out, err
}

func (c *Client) statistics(ctx context.Context, kind string) ([]statisticsBody, error) {
	const op = "get statistics"
	a, err := c.do(ctx, call{
		op: op, method: http.MethodGet, path: "/services/haproxy/stats/native", query: url.Values{"type": {kind}}, ok: []int{http.StatusOK},
	})
	if err != nil {
		return nil, err
	}
	var body struct {
		Error string
		Stats []statisticsBody
	}
	if err := decode(op, a, &body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		return nil, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no statistics"), kind: ErrRuntime}).redactedWith(c.access.Load())
	}
	return body.Stats, nil
}
