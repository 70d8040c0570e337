package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end after SIGTERM: what a kubelet
// gives it.
const stopTimeout = 30 * time.Second

// program is a compiler or pusher that runs beside the story.
type program struct {
	name   string
	cmd    *exec.Cmd
	output lockedBuffer
	done   chan struct{}
}

// start runs a program in the background and keeps what it logs. It goes on when
// ctx ends, for it is to be stopped as an operator would.
func (w *world) start(ctx context.Context, name, path string, args ...string) error {
	p := &program{name: name, cmd: command(context.WithoutCancel(ctx), path, args...), done: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() //nolint:errcheck // stop reads the exit code from ProcessState
	}()
	w.programs = append(w.programs, p)
	return nil
}

// stop ends the program as an operator would, and by force if it does not.
func (p *program) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-p.done
		return fmt.Errorf("%s ended by itself: %s", p.name, p.cmd.ProcessState)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		err := p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop within %s (kill: %w)", p.name, stopTimeout, err)
	}
}

func (p *program) log() string { return p.output.String() }

// dieWithParent makes a child end when the thread that started it does, so
// that a demo that is killed leaves nothing behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// lockedBuffer is a bytes.Buffer that a process writes and the story reads.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

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
