package compiler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// HAProxy has a table of clients for each backend with a rate limit. Who sends made-up addresses or values of headers fills
// it. So the tables of a namespace have a largest size together, and those of all namespaces. The tables of a namespace are
// of the same size, which is halved until they fit: so it seldom changes while backends come and go, and a namespace that
// has few never loses anything to one that has many.

const (
	// leastCounted is how many clients a limit counts even if its namespace has very many: they take about as much memory
	// as a backend with some servers.
	leastCounted = policy.MostCounted >> 9
	// fewCounted is how many clients are few enough to be worth a warning: most applications have fewer at a time.
	fewCounted = 10_000
)

// The limits of the configuration, and what they cost.
const (
	limitOfNamespace = "namespaceCountedClients"
	limitOfAll       = "countedClients"
	memoryOfClients  = "HAProxy takes up to 256 bytes of memory for each client"
)

// counting is the rate limits of a namespace.
type counting struct {
	backends []int // which of the model have one
	each     int   // how many clients each of them counts
	limit    string
	most     int
}

// shrink has each limit count fewer clients until all of them count no more than so many, or as few as they may.
func (c *counting) shrink(all int, limit string, most int) {
	for c.each > leastCounted && c.each*len(c.backends) > all {
		c.each, c.limit, c.most = c.each/2, limit, most
	}
}

// countFewer returns the backends, with rate limits that count fewer clients if those of their namespace, or those of all,
// are too many. It warns a namespace that has so many that they count few, at the youngest object that has one. If all
// namespaces together have too many, it warns once, since only the administrator can change that.
func countFewer(backends []routing.Backend, limits config.Limits, born func() map[diag.Object]time.Time) ([]routing.Backend, []diag.Diagnostic) {
	spaces := map[string]*counting{}
	for i, b := range backends {
		if b.Protection != nil && b.Protection.Rate != nil {
			namespace := payer(b).Object.Namespace
			if spaces[namespace] == nil {
				spaces[namespace] = &counting{each: policy.MostCounted}
			}
			spaces[namespace].backends = append(spaces[namespace].backends, i)
		}
	}
	var sizes []int
	for _, c := range spaces {
		if most := limits.NamespaceCountedClients; most > 0 {
			c.shrink(most, limitOfNamespace, most)
		}
		sizes = append(sizes, c.each*len(c.backends))
	}
	if most := limits.CountedClients; most > 0 {
		share := diag.Allowance(sizes, most)
		for _, c := range spaces {
			c.shrink(share, limitOfAll, most)
		}
	}
	maps.DeleteFunc(spaces, func(_ string, c *counting) bool { return c.limit == "" })
	if len(spaces) == 0 {
		return backends, nil // nearly always
	}
	var found []diag.Diagnostic
	var together counting
	var among []string // the namespaces
	out, ages := slices.Clone(backends), born()
	for _, namespace := range slices.Sorted(maps.Keys(spaces)) {
		c := spaces[namespace]
		var youngest routing.Origin
		for n, i := range c.backends {
			protection, rate := *out[i].Protection, *out[i].Protection.Rate
			rate.Counted, protection.Rate = c.each, &rate
			out[i].Protection = &protection
			if o := payer(out[i]); n == 0 || cmp.Or(ages[o.Object].Compare(ages[youngest.Object]), o.Compare(youngest)) > 0 {
				youngest = o
			}
		}
		if c.each >= fewCounted {
			continue
		}
		if c.limit == limitOfAll {
			together.backends = append(together.backends, c.backends...)
			together.each, together.most = min(cmp.Or(together.each, c.each), c.each), c.most
			among = append(among, namespace)
			continue
		}
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning, Position: youngest.Position, Object: youngest.Object,
			Message: fmt.Sprintf("namespace %s has rate limits for %d backends, so each of them counts %d clients at a time instead of %d: those of a namespace may count %d together",
				namespace, len(c.backends), c.each, policy.MostCounted, c.most),
			Hint: "have fewer backends with a limit, or have limits." + limitOfNamespace + " of the configuration raised; " + memoryOfClients,
		})
	}
	if len(among) > 0 {
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning,
			Message: fmt.Sprintf("the rate limits of %d backends count as few as %d clients at a time instead of %d, since those of all namespaces may count %d together: they are in %s",
				len(together.backends), together.each, policy.MostCounted, together.most, printable.Few(among, 3)),
			Hint: "raise limits." + limitOfAll + " of the configuration; " + memoryOfClients,
		})
	}
	return out, found
}

// payer returns where a backend comes from whose namespace has it: the route, not the Gateway that it is attached to.
func payer(b routing.Backend) routing.Origin {
	for _, o := range b.Origins {
		switch o.Object.Kind {
		case "Ingress", "HTTPRoute", "GRPCRoute":
			return o
		}
	}
	if len(b.Origins) == 0 {
		return routing.Origin{}
	}
	return b.Origins[0]
}
