// The demo shows hapsnap's main job on one machine as a short story: the real programs, real HAProxy processes,
// and in front of each of them a double of the Dataplane API, or a real one. Run it with `make demo`; `make
// demo KEEP=1` leaves everything running until it is interrupted.
//
// Everything listens on loopback addresses of its own (127.0.10.0/24 and
// 127.0.20.0/24), and everything is written below one temporary directory,
// which is removed at the end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/output"
)

// limit is how long the whole story may take if somebody watches.
const limit = 2 * time.Minute

// options say which programs the demo runs, and on what.
type options struct {
	haproxy, compiler, pusher string // paths of the programs
	shop                      string // the directory examples/shop
	dataplaneAPI              string // a real one, "" for the double
	keep                      bool
	limit                     time.Duration // of the whole story
}

func main() {
	o := options{limit: limit}
	flag.StringVar(&o.haproxy, "haproxy", cmp.Or(os.Getenv("HAPROXY"), "haproxy"), "the HAProxy to run")
	flag.StringVar(&o.compiler, "compiler", "build/bin/compiler", "the compiler to run")
	flag.StringVar(&o.pusher, "pusher", "build/bin/pusher", "the pusher to run")
	flag.StringVar(&o.shop, "shop", "examples/shop", "the directory with the example")
	flag.BoolVar(&o.keep, "keep", os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0", "leave everything running until interrupted")
	flag.Parse()
	o.dataplaneAPI, _ = dataplanetest.Real(o.haproxy) // without one there is the double
	if o.dataplaneAPI != "" {
		fmt.Fprintln(os.Stderr, "demo: with the real Dataplane API", o.dataplaneAPI)
	}
	// The paths are good in any working directory then.
	for _, path := range []*string{&o.haproxy, &o.compiler, &o.pusher, &o.shop, &o.dataplaneAPI} {
		if strings.Contains(*path, "/") {
			*path, _ = filepath.Abs(*path) // fails only without a working directory
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted && !o.keep:
		os.Exit(process.ExitInterrupted)
	case err != nil && !interrupted:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(process.ExitFailure)
	}
}

// run tells the story once, and cleans up whatever happens.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	told, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	s := &story{world: w, out: out}
	if err := s.tell(told); err != nil {
		return fmt.Errorf("%w\n%s", err, w.lastLogs())
	}
	if o.keep {
		s.leaveRunning()
		<-ctx.Done()
	}
	return nil
}

// stopTimeout is how long a program may take to end after SIGTERM: twice what a kubelet gives it, for machines
// that are busy with tests.
const stopTimeout = time.Minute

// program is a compiler or pusher that runs beside the story.
type program struct {
	name   string
	cmd    *exec.Cmd
	output output.Buffer
	done   chan struct{}
}

// start runs a program in the background and keeps its log. The program continues when ctx ends, since it must
// be stopped as an operator would.
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
		if code := p.cmd.ProcessState.ExitCode(); code > 0 {
			return fmt.Errorf("%s was asked to stop and ended with %d:\n%s", p.name, code, p.log())
		}
		return nil
	case <-time.After(stopTimeout):
	}
	// A Go program that gets SIGQUIT says where it hangs, and ends.
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return fmt.Errorf("%s did not stop within %s:\n%s", p.name, stopTimeout, p.log())
}

func (p *program) log() string { return p.output.String() }

// dieWithParent makes a child end when the thread that started it does, so
// that a demo that is killed leaves nothing behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
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
