package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// mostParts is how many names of headers and parameters, and expressions, the routes of a namespace may
// look at: each costs every request with conditions.
const mostParts = 64

// size is what matches take in HAProxy's maps.
type size struct{ matches, bytes int }

func sizeOf(attachments []attach.Attachment, matches []layout.Match) size {
	var out size
	each := 0
	for _, m := range matches {
		each += len(m.Path)
		for _, c := range m.Conditions {
			each += len(c.Name) + len(c.Value)
		}
	}
	for _, a := range attachments {
		out.matches += len(a.Hosts) * len(matches)
		for _, h := range a.Hosts {
			out.bytes += each + len(h.Name)*len(matches)
		}
	}
	return out
}

// bound counts what a route brings to listeners, and says why that is too much.
func (t *routes) bound(r *read, attachments []attach.Attachment) attach.Verdict {
	namespace := r.Object.Ref.Namespace
	all, more := t.matches[namespace], sizeOf(attachments, r.matches)
	all = size{all.matches + more.matches, all.bytes + more.bytes}
	var message, limit string
	switch {
	case t.cfg.MostRoutes > 0 && all.matches > t.cfg.MostRoutes:
		message, limit = fmt.Sprintf("the routes of the namespace %s have more than %d matches, once for each host", namespace, t.cfg.MostRoutes), "namespaceRoutes"
	case t.cfg.MostRouteBytes > 0 && all.bytes > t.cfg.MostRouteBytes:
		message, limit = fmt.Sprintf("the matches of the namespace %s have more than %d bytes, once for each host", namespace, t.cfg.MostRouteBytes), "namespaceRouteBytes"
	default:
		t.matches[namespace] = all
		return attach.Verdict{}
	}
	if r.own.Protect() {
		t.bar(r)
	}
	t.report(diag.Error, r.Ref, r.Position("spec"), message+"; this one is not served", "raise limits."+limit+" of the configuration")
	return attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}
}

// costly takes note of the parts of requests that matches look at, and says which one is too much.
func (t *routes) costly(namespace string, matches []layout.Match) *problem {
	known := t.parts[namespace]
	if known == nil {
		known = map[string]bool{}
		t.parts[namespace] = known
	}
	more := map[string]bool{}
	for _, m := range matches {
		for _, c := range m.Conditions {
			part := string(c.Of) + " " + c.Name
			if c.Of == routing.HeaderPattern || c.Of == routing.QueryPattern || c.Of == routing.PathPattern {
				part += " " + c.Value
			}
			if !known[part] {
				more[part] = true
			}
		}
	}
	if len(known)+len(more) > mostParts {
		return unsupported("the routes of the namespace %s look at more than %d names of headers and parameters, and expressions", namespace, mostParts).in("matches")
	}
	maps.Copy(known, more)
	return nil
}

// wordy takes note of the bytes that a rule brings to backends, and says when it is too much.
func (t *routes) wordy(namespace string, bytes int) *problem {
	if t.cfg.MostOptionBytes > 0 && t.optionBytes[namespace]+bytes > t.cfg.MostOptionBytes {
		return unsupported("the options and filters of the routes of the namespace %s have more than %d bytes in HAProxy's backends (limits.namespaceOptionBytes of the configuration)", namespace, t.cfg.MostOptionBytes)
	}
	t.optionBytes[namespace] += bytes
	return nil
}

// count returns how many backends a rule leads to.
func (w *wants) count() int {
	names := map[string]bool{}
	for _, b := range w.backends {
		names[b.Name] = true
	}
	return len(names)
}

// optionBytes returns those of the options of a route.
func (c *claims) optionBytes() int {
	n := 0
	for name, value := range c.Value.Annotations {
		if strings.HasPrefix(name, options.Prefix) {
			n += len(name) + len(value)
		}
	}
	return n
}

// filterBytes returns those of the filters of a rule and its backendRefs.
func filterBytes(rule gatewayv1.HTTPRouteRule) int {
	lists := [][]gatewayv1.HTTPRouteFilter{rule.Filters}
	for _, ref := range rule.BackendRefs {
		lists = append(lists, ref.Filters)
	}
	n := 0
	for _, filters := range lists {
		if len(filters) > 0 {
			text, _ := json.Marshal(filters) // about what they take there
			n += len(text)
		}
	}
	return n
}
