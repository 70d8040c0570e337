package metricsdoc

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Table returns a table of the metrics whose names begin with a prefix, in the
// order of their names. A metric that has labels must have a sample, for only a
// sample tells its type.
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

// unit returns the unit that a name ends with, where it has one.
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
