package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// echo is a pod of the demo: it answers every request with its own name.
type echo struct{ server *http.Server }

func startEcho(ctx context.Context, name, address string) (*echo, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start service %s: %w", name, err)
	}
	e := &echo{server: &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }),
	}}
	go e.server.Serve(listener) //nolint:errcheck // it ends when the demo closes it
	return e, nil
}

func (e *echo) close() { e.server.Close() }
