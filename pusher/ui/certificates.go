package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// certificatesTab is the tab of the certificates that clients get.
func certificatesTab() tab {
	return tab{
		path: "/certificates", title: "Certificates",
		pages: []page{{path: "/certificates", title: titled("Certificates"), live: true, data: certificatesData, parts: []part{{"certificates", "wide"}}}},
		apis: []api{{
			path: "certificates", summary: "Certificates of a snapshot, those that expire first at the top, and no keys", example: certificatesPage{},
			params: []param{{"snapshot", snapshotAbout}}, data: certificatesData,
		}},
	}
}

// certificate is a certificate of a snapshot.
type certificate struct {
	Secret      string    `json:"secret,omitempty"` // none for the fallback certificate
	Use         string    `json:"use"`
	Mode        string    `json:"mode"`
	Names       []string  `json:"names,omitempty"`
	Hosts       []string  `json:"hosts,omitempty"` // of routes that use it
	Routes      int       `json:"routes"`
	NotAfter    time.Time `json:"notAfter,omitzero"`
	Fingerprint string    `json:"fingerprint,omitempty"` // as the compiler saw it
	Issuer      string    `json:"issuer,omitempty"`      // as a running pusher knows it
	Fallback    bool      `json:"fallback,omitempty"`
	now         time.Time
}

// soon is how long before its expiry a certificate is marked.
const soon = 21 * 24 * time.Hour

// Expiry summarizes how long the certificate is valid.
func (c certificate) Expiry() string { return expiryOf(c.NotAfter, c.now) }

// Class marks a certificate that expires soon.
func (c certificate) Class() string { return expiryClass(c.NotAfter, c.now) }

func expiryOf(end, now time.Time) string {
	if end.IsZero() {
		return "not known"
	}
	switch days := int(end.Sub(now).Hours() / 24); {
	case end.Before(now):
		return "▲ expired"
	case end.Sub(now) < soon:
		return "▲ " + plural(days, "day", "days")
	default:
		return plural(days, "day", "days")
	}
}

func expiryClass(end, now time.Time) string {
	if end.IsZero() || end.Sub(now) > soon {
		return ""
	}
	return "down"
}

// MoreHosts is how many hosts are not shown.
func (c certificate) MoreHosts() int { return max(0, len(c.Hosts)-mostHosts) }

// FirstHosts are the hosts that are shown.
func (c certificate) FirstHosts() []string { return c.Hosts[:min(len(c.Hosts), mostHosts)] }

const mostHosts = 8

// certificatesPage is what the tab shows.
type certificatesPage struct {
	Of           chosen        `json:"of"`
	Certificates []certificate `json:"certificates"`
	Snapshot     string        `json:"-"`
	Live         bool          `json:"-"`                       // set if the contents of Secrets are known from a running pusher
	ByFallback   int           `json:"hostsWithoutCertificate"` // hosts whose clients get the default certificate
}

func certificatesData(ctx context.Context, q query) (any, error) {
	of, m, err := chooseManifest(ctx, q)
	if err != nil {
		return nil, err
	}
	read, err := q.archive.routes(ctx, of.ID)
	if err != nil {
		return nil, err
	}
	table := read.table
	hosts, routes, byDefault := map[string]map[string]bool{}, map[string]int{}, map[string]bool{}
	for i := range table.Routes {
		r := &table.Routes[i]
		if r.Certificate == nil {
			continue
		}
		if r.Certificate.Default {
			byDefault[r.Host] = true
			continue
		}
		file := r.Certificate.File
		if hosts[file] == nil {
			hosts[file] = map[string]bool{}
		}
		hosts[file][r.Host] = true
		routes[file]++
	}
	p := certificatesPage{Of: of, Certificates: []certificate{}, Snapshot: q.values.Get("snapshot"), ByFallback: len(byDefault), Live: of.Now && q.fleet.Live != nil}
	for _, c := range m.Spec.Certificates {
		if c.Use == snapshots.UseUsers || c.Use == snapshots.UseValue {
			continue // which are no certificates
		}
		one := certificate{Use: useOf(c), Mode: string(cmp.Or(c.Mode, "live")), Hosts: sortedKeys(hosts[c.File]), Routes: routes[c.File], Fallback: c.Secret.Name == "", now: q.now}
		if !one.Fallback {
			one.Secret = c.Secret.String()
		}
		if o := c.Observed; o != nil {
			one.Names, one.NotAfter, one.Fingerprint = o.Names, o.NotAfter, o.Fingerprint
		}
		if l := q.fleet.Live; l != nil && of.Now && !one.Fallback && !c.Versioned() { // the Secret may hold another certificate by now
			one.Issuer = report.FirstLine(l.Issuers[c.Secret], report.LongestMessage)
			one.NotAfter = latest(l.CertificateEnds[c.Secret], one.NotAfter)
		}
		p.Certificates = append(p.Certificates, one)
	}
	slices.SortStableFunc(p.Certificates, func(a, b certificate) int {
		if a.NotAfter.IsZero() != b.NotAfter.IsZero() {
			return map[bool]int{true: 1, false: -1}[a.NotAfter.IsZero()]
		}
		return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Secret, b.Secret))
	})
	return p, nil
}

// latest returns what is known now, or else what was seen before.
func latest(now, before time.Time) time.Time {
	if now.IsZero() {
		return before
	}
	return now
}

func useOf(c snapshots.CertificateRef) string {
	switch {
	case c.Secret.Name == "":
		return "shown where there is no other"
	case c.Use == snapshots.UseCA:
		return "checks clients or servers"
	}
	return "shown to clients"
}

// placeOf returns FILE:LINE, "" without a file.
func placeOf(file string, line int) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", file, line)
}
