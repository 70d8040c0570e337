// Bench prints how long hapsnap takes, as ratios to what it cannot be quicker than, and writes the
// page docs/performance.md with a chart.
//
//	go run ./hack/bench [-sizes 100,1000] [-rows compile,change] [-write docs]
//
// Each row is measured beside its limit, in turns: once the limit, once hapsnap, and so on, and the
// medians are compared. So a machine that is busy with something else slows down both alike. With
// -write, the figures go into performance.json in that folder, and the page and the chart are made of
// them.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 1 && args[0] == childVerb {
		return part(ctx, args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := flags.String("sizes", "100,1000,10000", "how many Ingresses there are, one run for each")
	only := flags.String("rows", "", "the rows to measure, by name; all but those of histories, which take long, if empty")
	budget := flags.Duration("budget", 20*time.Second, "how long a row of a size is measured, at least three turns")
	write := flags.String("write", "", "the folder for performance.md, its figures and its chart")
	load := flags.String("load", "", "what else the machine does meanwhile, for the page")
	profile := flags.String("cpuprofile", "", "a file for a profile of this process, for rows that need no cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var list []int
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 20 {
			return fmt.Errorf("-sizes: %q is no number of Ingresses from 20 on", text)
		}
		list = append(list, n)
	}
	slices.Sort(list)
	measured, err := chosen(*only)
	if err != nil {
		return err
	}
	work := func() error {
		return measureAll(ctx, Figures{Load: *load, Sizes: list, Cells: map[string]map[int]Cell{}}, measured, *budget, *write)
	}
	if !slices.ContainsFunc(measured, func(r row) bool { return r.cluster }) {
		if *profile != "" {
			file, err := os.Create(*profile)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			if err := pprof.StartCPUProfile(file); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		return work()
	}
	// The addresses of pods are this machine's there.
	code := kubetest.InNamespace(func() int {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	})
	os.Exit(code)
	return nil
}

// measureAll measures rows, prints them, and writes them into a folder if there is one.
func measureAll(ctx context.Context, figures Figures, measured []row, budget time.Duration, write string) error {
	b, err := newBench(ctx, budget)
	if err != nil {
		return err
	}
	defer b.close()
	figures.Machine = machine(ctx, b.check)
	if err := b.measure(ctx, &figures, measured); err != nil {
		return err
	}
	fmt.Print(figures.table())
	if write == "" {
		return nil
	}
	before, err := readFigures(write)
	if err != nil {
		return err
	}
	return figures.over(before).write(write)
}

// chosen returns the rows with names, or all that do not take too long.
func chosen(names string) ([]row, error) {
	if names == "" {
		return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.long }), nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name }) {
			return nil, fmt.Errorf("-rows: there is no row %q", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(wanted, r.name) }), nil
}

// bench is what rows are measured with.
type bench struct {
	check   *validate.Checker
	budget  time.Duration
	dir     string // for everything that is written
	program string // the compiler, once it is built
	unseen  int    // see input
	end     func() // of what the check keeps
}

func newBench(ctx context.Context, budget time.Duration) (*bench, error) {
	check, err := validate.Find(ctx, haproxyName())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hapsnap-bench-")
	return &bench{check: check, budget: budget, dir: dir, end: check.Reuse()}, err
}

// haproxyName is the name or the path of the haproxy to measure with.
func haproxyName() string { return cmp.Or(os.Getenv("HAPROXY"), "haproxy") }

func (b *bench) close() {
	b.end()
	_ = os.RemoveAll(b.dir)
}

// measure measures rows at all sizes. What a row says as it goes is for people who wait.
func (b *bench) measure(ctx context.Context, f *Figures, rows []row) error {
	for _, size := range f.Sizes {
		w := newWorld(b, size)
		for _, r := range rows {
			if r.most > 0 && size > r.most || (r.long || r.once) && f.Cells[r.name] != nil {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, %s: %s\n", time.Now().UTC().Format(time.TimeOnly), digits(size), r.name)
			cell, err := r.measure(ctx, w)
			if err != nil {
				return fmt.Errorf("%s of %d: %w", r.name, size, err)
			}
			if f.Cells[r.name] == nil {
				f.Cells[r.name] = map[int]Cell{}
			}
			cell.Date, cell.Commit = time.Now().UTC().Format(time.DateOnly), f.Machine.Commit
			f.Cells[r.name][size] = cell
			fmt.Fprintf(os.Stderr, "  %s\n", cell.text(r))
		}
	}
	return ctx.Err()
}

// The turns of a row: at least, so that there is a median; and at most.
const (
	leastTurns = 3
	mostTurns  = 25
)

// step is something to be timed. What it prepares is not: it returns what is timed.
type step func(ctx context.Context) (timed func() error, err error)

// plain is a step that prepares nothing.
func plain(timed func() error) step {
	return func(context.Context) (func() error, error) { return timed, nil }
}

// inTurns times two steps in turns, and returns the medians. A first turn, in which caches are filled,
// does not count.
func (b *bench) inTurns(ctx context.Context, limit, work step) (Cell, error) {
	var limits, works []time.Duration
	began := time.Now()
	for n := 0; n <= mostTurns && (n <= leastTurns || time.Since(began) < b.budget); n++ {
		for _, side := range []struct {
			step
			took *[]time.Duration
		}{{limit, &limits}, {work, &works}} {
			took, err := timed(ctx, side.step)
			if err != nil {
				return Cell{}, err
			}
			if n > 0 {
				*side.took = append(*side.took, took)
			}
		}
	}
	return Cell{Limit: median(limits).Seconds(), Work: median(works).Seconds(), Turns: len(works)}, nil
}

// timed times one step. The garbage of what ran before is not its own.
func timed(ctx context.Context, s step) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	do, err := s(ctx)
	if err != nil {
		return 0, err
	}
	runtime.GC()
	began := time.Now()
	err = do()
	return time.Since(began), err
}

func median(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}
