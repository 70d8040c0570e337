package testscripts

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

func printRequests(w *world, ts *testscript.TestScript, args []string) error {
	i, err := w.one(args)
	if err != nil {
		return err
	}
	_, err = io.WriteString(ts.Stdout(), i.writes())
	return err
}

// writes returns the calls that do not only read, one on each line.
func (i *instance) writes() string {
	var b strings.Builder
	for _, r := range i.Requests() {
		if r.Method != http.MethodGet {
			fmt.Fprintln(&b, r.Method, r.Path, r.Query)
		}
	}
	return b.String()
}

func wroteCall(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	return match(args[1], i.writes())
}

// countPushes counts posts of configurations, except those that only update the file on disk.
func countPushes(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return errUsage
	}
	got := 0
	for _, r := range i.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/configuration/raw") && !strings.Contains(r.Query, "skip_reload=true") {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%s had %d pushes, not %d", i.name, got, want)
	}
	return nil
}

func printWorkers(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) > 0 {
		return errUsage
	}
	out := ts.Stdout()
	for _, i := range w.instances {
		pid, err := i.WorkerPID()
		if err != nil {
			return fmt.Errorf("ask %s: %w", i.name, err)
		}
		fmt.Fprintln(out, i.name, pid)
	}
	return nil
}
