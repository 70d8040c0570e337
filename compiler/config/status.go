package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Status is the listener for monitoring and load balancers.
type Status struct {
	// Port is the TCP port. 0 is no such listener.
	Port int `json:"port"`
	// Addresses are where it listens, in the form of bind.addresses; none are
	// those of bind.addresses.
	Addresses []string `json:"addresses"`
	// Prometheus is HAProxy's own exporter of metrics.
	Prometheus StatusPage `json:"prometheus"`
	// Stats is HAProxy's page of statistics, for people. Nothing can be changed
	// there.
	Stats StatusPage `json:"stats"`
	// Ready says when /ready fails.
	Ready Ready `json:"ready"`
}

// StatusPage is a page of the status listener.
type StatusPage struct {
	// Enabled serves it.
	Enabled bool `json:"enabled"`
	// Path is where it is served.
	Path string `json:"path"`
}

// Ready says when /ready fails.
type Ready struct {
	// MinBackendsPercent is how many of the backends must have a usable server,
	// in percent. A backend counts if its Service exists, be it for requests, for
	// connections that are passed on, or for a TCP service; and has no usable
	// server if the Service has no ready endpoint, its external name has no
	// address, or health checks found all servers down. They are counted once a
	// second at most. 0 does not count them.
	MinBackendsPercent int `json:"minBackendsPercent"`
}

// The paths of the status listener that are not for a page to take.
const (
	healthPath = "/healthz"
	readyPath  = "/ready"
)

func defaultStatus() Status {
	return Status{
		Port:       8404,
		Addresses:  []string{},
		Prometheus: StatusPage{Enabled: true, Path: "/metrics"},
		Stats:      StatusPage{Path: "/stats"},
	}
}

// StatusAddresses returns where the status listener listens.
func (c Config) StatusAddresses() []string {
	if len(c.Status.Addresses) > 0 {
		return c.Status.Addresses
	}
	return c.Bind.Addresses
}

// pathForm is what a path of the status listener may be.
var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9._~-]{1,64}){1,8}$`)

func (s Status) check(f field.Errors) {
	checkAddresses(f.At("addresses"), s.Addresses)
	taken := []string{healthPath, readyPath}
	for _, page := range []struct {
		name string
		StatusPage
	}{{"prometheus", s.Prometheus}, {"stats", s.Stats}} {
		at := f.At(page.name).At("path")
		switch {
		case !pathForm.MatchString(page.Path):
			at.Add(fmt.Sprintf("%q is not a path of plain words", page.Path), "use one such as /metrics")
		case slices.Contains(taken, page.Path):
			at.Add(fmt.Sprintf("%s is another page", page.Path), "give each page a path of its own")
		}
		taken = append(taken, page.Path)
	}
	if n := s.Ready.MinBackendsPercent; n < 0 || n > 100 {
		f.At("ready").At("minBackendsPercent").Add(fmt.Sprintf("%d is not a percentage", n), "use 0 to 100")
	}
}
