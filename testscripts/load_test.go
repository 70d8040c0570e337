package testscripts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The load on each instance: how many clients send requests one after another, mostly on one connection, and at
// what pace.
const (
	loadClients = 4
	loadPace    = 5 * time.Millisecond
)

// load has clients that send requests until they are stopped.
type load struct {
	cancel  context.CancelFunc
	began   time.Time
	clients sync.WaitGroup
	good    atomic.Int64
	mu      sync.Mutex
	bad     []error
}

// startLoad starts clients that request a URL from every instance.
func startLoad(w *world, _ *testscript.TestScript, args []string) error {
	how := ""
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		how, args = args[0], args[1:]
	}
	if len(args) != 2 || w.loads[args[0]] != nil || len(w.instances) == 0 || how != "" && how != "-new" && how != "-raw" {
		return errUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, began: time.Now()}
	w.loads[args[0]] = l
	for _, i := range w.instances {
		for n := range loadClients {
			pace := loadPace
			ask := l.repeating(w, i, args[1], how == "-new")
			if how == "-raw" {
				client, err := newRawClient(w, i, args[1])
				if err != nil {
					return err
				}
				ask, pace = client.get, loadPace<<(2*n) // some clients are busy, and some are mostly idle
			}
			l.clients.Go(func() { l.run(ctx, i, pace, ask, args[1]) })
		}
	}
	return nil
}

// repeating returns the request of a client. The client repeats it if a kept connection was closed.
func (l *load) repeating(w *world, i *instance, url string, fresh bool) func() (answer, error) {
	client := &http.Client{Timeout: talkTimeout, Transport: &http.Transport{
		DialContext: w.dialer(i), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		DisableKeepAlives: fresh,
	}}
	return func() (answer, error) { return fetch(client, url) }
}

func (l *load) run(ctx context.Context, i *instance, every time.Duration, ask func() (answer, error), url string) {
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		got, err := ask()
		if err == nil && got.status == http.StatusOK {
			l.good.Add(1)
			continue
		}
		l.fail(i, fmt.Errorf("GET %s: status %d: %w", url, got.status, err))
	}
}

// fail records a failed request: when, and which servers of the worker lead nowhere.
func (l *load) fail(i *instance, err error) {
	after := time.Since(l.began).Round(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.bad) < 5 {
		err = fmt.Errorf("%w, %s at %s of %s (servers that lead nowhere: %s)", err, after, l.began.Add(after).Format("15:04:05.000"), i.name, astray(i))
	}
	l.bad = append(l.bad, err)
}

func (l *load) stop() {
	l.cancel()
	l.clients.Wait()
}

// answeredLoad waits for a number of good answers since the load began. It may be used with await.
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

// stopLoad ends a load. None of its requests may have failed.
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
