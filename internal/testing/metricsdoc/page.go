// Package metricsdoc writes the table of a registry's metrics into a page, and finds the metrics that a page
// mentions. It is for the tests that keep the page up to date, and takes type, labels and help from the
// registry itself.
package metricsdoc

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Section returns what a page has between the comments "<!-- name -->" and
// "<!-- end of name -->".
func Section(page, name string) (string, error) {
	from, to := marks(name)
	_, rest, begins := strings.Cut(page, from)
	section, _, ends := strings.Cut(rest, to)
	if !begins || !ends {
		return "", fmt.Errorf("the page has no section %q", name)
	}
	return section, nil
}

func marks(name string) (from, to string) {
	return "<!-- " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// Replace writes a section of the page in a file. The tests of several packages
// may do so at the same time.
func Replace(file, name, section string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", file, err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	old, err := Section(string(page), name)
	if err != nil {
		return err
	}
	from, to := marks(name)
	return os.WriteFile(file, []byte(strings.Replace(string(page), from+old+to, from+section+to, 1)), 0o644)
}

// Unknown returns the metrics with a prefix that a page mentions and the registry lacks. It knows the series of
// histograms.
func Unknown(page, prefix string, r *prometheus.Registry) ([]string, error) {
	families, err := r.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[f.GetName()+suffix] = f.GetType().String() == "HISTOGRAM"
		}
	}
	var unknown []string
	for _, name := range regexp.MustCompile(regexp.QuoteMeta(prefix)+`[a-z_]+`).FindAllString(page, -1) {
		if !known[name] && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown, nil
}

// Table returns a table of the metrics with a prefix, in the order of their names. A metric with labels must
// have a sample, since only a sample shows its type.
func Table(r *prometheus.Registry, prefix string) (string, error) {
	families, err := r.Gather()
	if err != nil {
		return "", fmt.Errorf("gather metrics: %w", err)
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | unit | what it says |\n|---|---|---|---|---|\n")
	listed := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			listed++
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), labels(f), unit(f.GetName()), f.GetHelp())
		}
	}
	if registered := described(r, prefix); registered != listed {
		return "", fmt.Errorf("%d metrics are registered, and %d have a sample", registered, listed)
	}
	return b.String(), nil
}

// described counts the metrics that are registered.
func described(r *prometheus.Registry, prefix string) (n int) {
	all := make(chan *prometheus.Desc)
	go func() {
		r.Describe(all)
		close(all)
	}()
	for d := range all {
		if strings.HasPrefix(d.String(), `Desc{fqName: "`+prefix) {
			n++
		}
	}
	return n
}

// labels returns the labels of a metric. They are the same for all its samples.
func labels(f *dto.MetricFamily) string {
	var names []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, "`"+l.GetName()+"`")
	}
	return strings.Join(names, ", ")
}

// unit returns the unit with which a name ends, if it has one.
func unit(name string) string {
	switch name = strings.TrimSuffix(name, "_total"); {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return "Unix time in seconds"
	case strings.HasSuffix(name, "_seconds"), strings.Contains(name, "_seconds_since_"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	}
	return ""
}

// Check fails a test whose page does not have the table of a registry's metrics as a section, or mentions
// metrics with the prefix that the registry lacks. With update it writes the section first.
func Check(t *testing.T, r *prometheus.Registry, file, section, prefix string, update bool) {
	t.Helper()
	table, err := Table(r, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if update {
		if err := Replace(file, section, table); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documented, err := Section(string(page), section)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table, documented); diff != "" {
		t.Errorf("%s differs from the registry; run make generate:\n%s", file, diff)
	}
	if unknown, err := Unknown(string(page), prefix, r); err != nil || len(unknown) > 0 {
		t.Errorf("%s speaks of %q: %v", file, unknown, err)
	}
}
