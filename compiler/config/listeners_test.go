package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatusFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"addresses: ['10.0.0.300']":        `c.yaml:5:17: spec.status.addresses[0]: "10.0.0.300" is not an address` + "\n\thint: " + addressHint,
		"prometheus: {path: metrics}":      `c.yaml:5:24: spec.status.prometheus.path: "metrics" is not a path of plain words` + "\n\thint: use one such as /metrics",
		"stats: {path: '/a b'}":            `c.yaml:5:19: spec.status.stats.path: "/a b" is not a path of plain words` + "\n\thint: use one such as /metrics",
		"stats: {path: /metrics}":          "c.yaml:5:19: spec.status.stats.path: /metrics is the path of another page\n\thint: give each page a path of its own",
		"prometheus: {path: /ready}":       "c.yaml:5:24: spec.status.prometheus.path: /ready is the path of another page\n\thint: give each page a path of its own",
		"ready: {minBackendsPercent: 101}": "c.yaml:5:33: spec.status.ready.minBackendsPercent: 101 is not a percentage\n\thint: use 0 to 100",
		"ready: {maxQueued: -1}":           "c.yaml:5:24: spec.status.ready.maxQueued: -1 is not a number of requests\n\thint: use 1 or more, or 0 not to count them",
		"ready: {services: [web]}":         "c.yaml:5:24: spec.status.ready.services[0]: \"web\" is not namespace/name\n\thint: use the namespace and the name of a Service, such as shop/web",
		"ready: {minBackends: 1}":          "c.yaml:5:13: spec.status.ready.minBackends: unknown field\n\thint: use one of minBackendsPercent, services, maxQueued",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, found := Parse("c.yaml", []byte(head+"spec:\n  status:\n    "+text+"\n"))
			if len(found) != 1 {
				t.Fatal(found)
			}
			if diff := cmp.Diff(want, found[0].String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
