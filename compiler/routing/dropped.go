package routing

import (
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// A dropped Ingress is one that protects something and has no routes, not even closed ones,
// since HAProxy or a check refuses those too. Its requests get to whatever else matches them.
// Only routes of its own namespace lead to the Services that it protects. So those that may
// match its requests now are closed, and nobody else pays for it.

// bar finds out which hosts of which namespaces are closed for Ingresses that were dropped.
func (t *translation) bar(ingresses []ingress) {
	for _, ing := range ingresses {
		if !t.cfg.Dropped[ing.Ref] || options.IsCanary(ing.Value.Annotations) || !t.protects(ing) {
			continue
		}
		_, aliases := hostOptions(ing)
		bar := func(host string) {
			if _, known := t.barred[sharing{host, ing.Ref.Namespace}]; !known {
				t.barred[sharing{host, ing.Ref.Namespace}] = ing.Ref
			}
		}
		bar("") // where a request goes whose host has no other route, and the default backend
		t.eachHost(ing, aliases, func(host string, _ ...any) {
			bar(host)
			bar(wildcardKey(host))
		})
	}
}

// closeBarred has the Ingress at hand refuse requests for a host of the model that were those of
// an Ingress which was dropped. What it returns ends that.
func (t *translation) closeBarred(ing ingress, host string, at ...any) (end func()) {
	by, barred := t.barred[sharing{host, ing.Ref.Namespace}]
	was := t.asked.shut
	if !barred || was {
		return func() {}
	}
	t.asked.shut = true
	t.report(diag.Warning, ing, ing.Position(at...),
		"the routes"+ofHost(host)+" answer 503: "+by.String()+", which protects something there, cannot be used as it is, and its routes cannot even be closed",
		"mend "+by.String())
	return func() { t.asked.shut = was }
}
