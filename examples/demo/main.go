package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// limit is how long the whole story may take where somebody looks on.
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
	o.absolute()
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

// absolute makes the paths good in any working directory.
func (o *options) absolute() {
	for _, path := range []*string{&o.haproxy, &o.compiler, &o.pusher, &o.shop, &o.dataplaneAPI} {
		if strings.Contains(*path, "/") {
			*path, _ = filepath.Abs(*path) // fails only without a working directory
		}
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
