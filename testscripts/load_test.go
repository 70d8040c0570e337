package testscripts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The load on each instance: how many clients ask one request after another, mostly on a
// connection that they keep, and how soon.
const (
	loadClients = 4
	loadPace    = 5 * time.Millisecond
)

// load is what clients do until they are stopped.
type load struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup
	good    atomic.Int64
	mu      sync.Mutex
	bad     []error
}

// startLoad has clients ask every instance for a URL.
func startLoad(w *world, _ *testscript.TestScript, args []string) error {
	fresh := len(args) > 0 && args[0] == "-new"
	if fresh {
		args = args[1:]
	}
	if len(args) != 2 || w.loads[args[0]] != nil || len(w.instances) == 0 {
		return errUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	for _, i := range w.instances {
		for range loadClients {
			client := &http.Client{Timeout: talkTimeout, Transport: &http.Transport{
				DialContext: w.dialer(i), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
				DisableKeepAlives: fresh,
			}}
			l.clients.Go(func() { l.run(ctx, client, args[1]) })
		}
	}
	w.loads[args[0]] = l
	return nil
}

func (l *load) run(ctx context.Context, client *http.Client, url string) {
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		got, err := fetch(client, url)
		if err == nil && got.status == http.StatusOK {
			l.good.Add(1)
			continue
		}
		l.mu.Lock()
		l.bad = append(l.bad, fmt.Errorf("GET %s: status %d: %w", url, got.status, err))
		l.mu.Unlock()
	}
}

func (l *load) stop() {
	l.cancel()
	l.clients.Wait()
}

// answeredLoad waits for a number of good answers since the load began. It may
// be awaited.
func answeredLoad(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 || w.loads[args[0]] == nil {
		return errUsage
	}
	var want int64
	if _, err := fmt.Sscan(args[1], &want); err != nil {
		return errUsage
	}
	if got := w.loads[args[0]].good.Load(); got < want {
		return fmt.Errorf("load %s has had %d answers", args[0], got)
	}
	return nil
}

// stopLoad ends a load, of which no request may have failed.
func stopLoad(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 1 || w.loads[args[0]] == nil {
		return errUsage
	}
	l := w.loads[args[0]]
	delete(w.loads, args[0])
	l.stop()
	if len(l.bad) > 0 {
		return fmt.Errorf("%w: %d of %d requests failed: %w", errProgram, len(l.bad), int64(len(l.bad))+l.good.Load(), errors.Join(l.bad[:min(5, len(l.bad))]...))
	}
	return nil
}
