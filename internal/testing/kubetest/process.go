package kubetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
)

// heldThread is a thread of its own. The kernel takes a child's parent to be the
// thread that forked it, and sends the signal of bin/kube-apiserver when that ends.
type heldThread struct{ work chan func() }

func holdThread() *heldThread {
	h := &heldThread{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range h.work {
			f()
		}
	}()
	return h
}

func (h *heldThread) run(f func() error) error {
	done := make(chan error)
	h.work <- func() { done <- f() }
	return <-done
}

// release ends the thread, after its children.
func (h *heldThread) release() { close(h.work) }

// portLock is a port of 127.0.0.1 that no other Server takes, not even while
// nobody listens on it. The name of an abstract socket is the lock, and goes with
// the process.
type portLock struct {
	port  int
	guard net.Listener
}

// lockPort takes a free port below those that the kernel gives to clients.
func lockPort() (*portLock, error) {
	var last error
	for range 100 {
		port := 10000 + rand.IntN(20000)
		guard, err := new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@hapsnap-kubetest-%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock a port: %w", err)
		}
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", fmt.Sprintf(":%d", port))
		if err == nil {
			return &portLock{port, guard}, listener.Close()
		}
		last = errors.Join(err, guard.Close())
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}

func (l *portLock) release() error { return l.guard.Close() }
