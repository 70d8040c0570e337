package testscripts

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/tracingtest"
)

func startCollector(w *world, ts *testscript.TestScript, args []string) error {
	start := tracingtest.Start
	if len(args) == 1 && args[0] == "-hang" {
		start = tracingtest.StartHanging
	} else if len(args) > 0 {
		return errUsage
	}
	if w.collector != nil {
		return fmt.Errorf("%w: there is a collector already", errUsage)
	}
	w.collector = start()
	ts.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", w.collector.URL)
	return nil
}

func printSpans(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 1 || w.collector == nil {
		return errUsage
	}
	spans, wrong := w.collector.Spans()
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	wanted, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	found := false
	for tree := range strings.SplitAfterSeq(tracingtest.Tree(spans), "\n\n") {
		if wanted.MatchString(tree) {
			found = true
			if _, err := io.WriteString(ts.Stdout(), tree); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("no trace of %d spans has %q:\n%s", len(spans), args[0], tracingtest.Tree(spans))
	}
	return nil
}
