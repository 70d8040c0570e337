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
		return p, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no info"), kind: ErrRuntime}).shownWith(c.access.Load())
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
