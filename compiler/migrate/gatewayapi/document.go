package gatewayapi

import (
	"fmt"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// outcome is what becomes of an annotation of ours.
type outcome string

const (
	becomes outcome = "moved"
	differs outcome = "differs"
	lost    outcome = "left out"
	closed  outcome = "closed"
	ofOther outcome = "with the other"
	stays   outcome = "stays"
)

// outcomes say what becomes of each option, and how.
var outcomes = map[string]struct {
	outcome
	note string
}{
	"ssl-redirect":     {becomes, "A route of its own on the listeners for HTTP, with RequestRedirect."},
	"redirect":         {differs, "RequestRedirect. A location with a path gets the query of the request, and a scheme and a host where it has none. One with a query or a fragment closes the route."},
	"app-root":         {differs, "A rule for exactly `/`, as with `redirect`."},
	"fallback-service": {lost, "While the Service has no endpoint, the answer is 503."},
	"rewrite-path":     {becomes, "URLRewrite, for a path. An expression, or a group of one, closes the route."},
	"rewrite-host":     {becomes, "URLRewrite. A host with a port closes the route."},
	"server-alias":     {becomes, "More hostnames."}, "redirect-www": {becomes, "A route for the other name, with RequestRedirect."},
	"share-host":      {ofOther, "Whoever may attach routes to the Gateway may have a host: see `allowedRoutes` of its listeners."},
	"ssl-passthrough": {becomes, "A listener for TLS and a TLSRoute. With an option that protects, its connections are closed."},
	"path-type-default": {differs, "`Exact`, `PathPrefix` or `RegularExpression`. An expression that a prefix comes before is left out, or closes the host if it is protected. " +
		"Expressions of several Ingresses of a host are tried in the order of their routes."},
	"normalize-paths": {lost, "The configuration says it for routes. Where something is protected, the routes of the host are closed."}, "unsafe-paths": {ofOther, "With what protects. See below."}, "path-parameters": {lost, "As `normalize-paths`."},
	"canary": {differs, "Rules of the route. While the canary has no endpoint, it answers 503."}, "canary-weight": {becomes, "Weights of backendRefs."}, "canary-by-header": {becomes, "Header matches."},
	"canary-by-header-pattern": {becomes, "A header match with an expression."}, "canary-by-cookie": {differs, "An expression for the header Cookie, of at most 1023 bytes."},
	"timeout-server":  {becomes, "`timeouts.backendRequest`."},
	"request-headers": {becomes, "RequestHeaderModifier. `copy`, or two changes of one header, close the route."}, "response-headers": {becomes, "ResponseHeaderModifier, as with `request-headers`."},
	"forwarded-for": {closed, "The configuration says it for routes."}, "hsts": {becomes, "ResponseHeaderModifier, of the route for HTTPS."},
	"rewrite-cookie-path": {lost, ""}, "rewrite-cookie-domain": {lost, ""}, "intercept-errors": {lost, ""},
	"cors-allow-origin": {differs, "The filter CORS. Origins with `*.` are left out, since it stands for more there; preflight requests of other origins are answered 204."}, "cors-allow-origin-pattern": {lost, "These origins are no longer allowed."},
	"cors-allow-methods": {becomes, ""}, "cors-allow-headers": {becomes, ""}, "cors-expose-headers": {becomes, ""}, "cors-allow-credentials": {becomes, ""}, "cors-max-age": {becomes, ""},
	"affinity": {lost, ""}, "backend-protocol": {closed, "Set it on the Service, or `appProtocol` on its port."}, "send-proxy-protocol": {closed, "Set it on the Service."}, "snippet": {closed, ""},
}

// outcomeOf returns what becomes of an option.
func outcomeOf(o options.Option) (outcome, string) {
	known, has := outcomes[o.Name]
	switch {
	case o.On == options.OnService:
		return stays, "It is on the Service, for which hapsnap opens a port."
	case has:
		return known.outcome, known.note
	case o.Needs != "":
		return ofOther, "With `" + o.Needs + "`."
	case o.Closes:
		return closed, ""
	}
	return lost, "Set it on the Service, for all routes to it."
}

// Document returns what becomes of each annotation, as a page.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Annotations of Ingresses as routes of the Gateway API

<!-- Generated from the code of compiler/migrate/gatewayapi. The target generate of the Makefile writes it anew. -->

[From Ingress to Gateway API](../start/from-ingress-to-gateway-api.md) walks through a migration. This page says
what ` + "`compiler migrate --to gateway`" + ` does with each annotation of ours. Those of other controllers
[become ours](migration.md) first.

- *moved*: the route does the same.
- *differs*: it does, apart from what the note says.
- *left out*: the route is served without it. The report says so for each object, and the exit code is 3.
- *closed*: the rule has no backend, and answers 500. The report says so, and the exit code is 3. ` + "`--without NAME`" + ` says
  that the routes may do without the annotation.
- *with the other*: it goes where the option goes that it belongs to.
- *stays*: nothing becomes of it, since it is not about Ingresses.

| annotation | as a route | note |
|---|---|---|
`)
	for _, o := range options.All() {
		outcome, note := outcomeOf(o)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, outcome, note)
	}
	b.WriteString(`
## What else differs

| Ingress | route |
|---|---|
` + "| a wildcard stands for one label | for one label or more: more hosts are served |" + `
| 503 for a Service that does not exist | 500 |
| hosts without a certificate are served over HTTPS with the default one | not over HTTPS, unless the configuration has a default certificate |
| a request by a connection for another host is served, if both are ours | 421: the client makes a connection of its own |
| a path may have 8192 bytes | 1024 |
| expressions for paths look at all of a path | at no path of more than 1023 bytes: where a shorter path is open, a protected expression closes all of its host |
| a namespace has 512 expressions, and canaries by any headers | 64 expressions and names of headers: one expression more closes its host, and a canary more is left out |
| of two expressions the one that comes first has the request | one with a canary by header comes before one without: where this is another one, the canary is left out |
| paths that servers read in different ways are answered 400 where something is protected | all routes of the namespace on the host are closed whose Service may have the same Pods as one that is protected: unless the selectors of both say otherwise, or ` + "`unsafe-paths: pass`" + ` is set where it is protected |
| of two rules for the same the older Ingress has it | of the same, since only its rule becomes a route |
`)
	return b.String()
}
