package metricsdoc

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// Check fails a test whose page does not have the table of a registry's metrics as a section, or
// speaks of metrics with the prefix that are not in the registry. With update it writes the
// section first.
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
		t.Errorf("%s differs from the registry; rewrite it with -update:\n%s", file, diff)
	}
	if unknown, err := Unknown(string(page), prefix, r); err != nil || len(unknown) > 0 {
		t.Errorf("%s speaks of %q: %v", file, unknown, err)
	}
}
