// Package options knows the annotations below hapsnap.dev/: their names, what
// may be written in them, and which filters and policies they ask for.
//
// The compiler, the page that lists the options, and the tests that try to smuggle
// something through each of them all read one registry, [All]. Each value is parsed
// into a type where it enters. Text without a type of its own, such as a header's value,
// may only have characters that cannot end a line. Package routing decides where the
// result belongs.
//
// # Decisions
//
// A list of networks becomes one file for all options that name it. It is read whole or not
// at all: a wrong line closes the routes, since leaving the line out of a deny list would let
// somebody in. An option can name a list of another namespace only if the configuration
// shares it. Otherwise a tenant could probe others through HAProxy.
//
// Names of ExternalName Services are structure; HAProxy resolves them. The compiler writes
// a server line with the name, and HAProxy looks it up after it has started (init-addr
// last,none). So neither a start nor a check waits for a name server, and requests get 503
// for the milliseconds until the first answer. Names that lead into the cluster or to the
// machine are refused unless they are listed. The compiler cannot see where a foreign name
// server sends HAProxy, so externalNames can refuse all names, or list domains.
//
// Annotations open only the TCP ports that the administrator lists. A port that another
// process uses on HAProxy's machine fails every reload, and neither the compiler nor
// haproxy -c can see that. All namespaces share the ports, too. Ports of the other
// listeners are always refused.
//
// satisfy: any applies only to the options of its own object. Otherwise an Ingress could
// take the auth-basic of its Service away with a list of all addresses. If both objects
// have such options, the routes answer 503.
//
// A fallback belongs to its route: fallback-service makes a backend with other endpoints
// and with the filters and the protection of the route, as a canary does. It is not used
// while the route is closed.
//
// A client's name is compared as a whole, in a subject with one common name. The expression
// ends with \z and not $, which also matches before a line break. ingress-nginx looks for a
// match anywhere in the subject, such as in an organisation called "x,CN=admin".
package options

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// All returns every option, in the order of the document.
func All() []Option {
	return slices.Concat(
		routingOptions(), pathOptions(), canaryOptions(), serverOptions(), connectionOptions(), serverTLSOptions(), fastCGIOptions(), sessionOptions(), headerOptions(), corsOptions(),
		protectionOptions(), authenticationOptions(), satisfyOptions(), externalAuthOptions(), agentOptions(), clientOptions(),
		tcpOptions(), snippetOptions(),
	)
}

const (
	valueBool     = "`true` or `false`"
	valueDuration = "a time such as `30s`"
	valueNetworks = "CIDRs, addresses or `@` lists, separated by commas"
	valueEdits    = "lines of `set NAME VALUE`, `add NAME VALUE`, `copy NAME SOURCE`, `remove NAME`"
)

// PathType is the name of the option that says what ImplementationSpecific means.
const PathType = "path-type-default"

// pathType is what ImplementationSpecific means; zero is a prefix.
type pathType struct{ exact, expressions bool }

func routingOptions() []Option {
	return []Option{
		define(Option{
			Name: "ssl-redirect", Group: Routing, On: OnIngress, Value: "`true`, `false`, or a status: `301`, `302`, `303`, `307`, `308`",
			Example: "true", Default: "`false`", Summary: "Redirects plain HTTP to HTTPS; `true` does so with 308.",
		}, httpsRedirect, func(s *Settings, v *policy.HTTPSRedirect) { s.https = v }),
		define(Option{
			Name: "redirect", Group: Routing, On: OnIngress, Value: "a URL or a path, and perhaps a status: `301`, `302`, `303`, `307`, `308`",
			Example: "https://new.example 301",
			Summary: "Redirects every request, with 302 unless a status is given. A URL without a path keeps the request's path and query; any other location is sent as it is.",
		}, redirect, func(s *Settings, v *policy.Redirect) { s.redirect = v }),
		define(Option{
			Name: "app-root", Group: Routing, On: OnIngress, Value: "a path", Example: "/app",
			Summary: "Redirects `/` to this path, where a rule of the Ingress matches `/`.",
		}, localPath, func(s *Settings, v string) { s.appRoot = v }),
		define(Option{
			Name: "fallback-service", Group: Routing, On: OnIngress, Value: "`NAME` or `NAME:PORT`", Example: "sorry:8080",
			Summary: "The Service of the same namespace that gets the requests of a route whose own Service has no usable endpoint, on its first port unless one is named. All options of the route still apply. Without it, such requests get 503.",
		}, fallbackService, func(s *Settings, v policy.ServiceRef) { s.Fallback = v }),
		define(Option{
			Name: "rewrite-path", Group: Routing, On: OnIngress, Value: "a path, or a regular expression and a replacement",
			Example: `^/old/(.*) /new/\1`,
			Summary: "A path takes the place of what the rule's `path` matched; of a path that is an expression (`path-type-default: Regex`) it replaces all, and `\\1` is the expression's first group. A regular expression (a part of [PCRE](expressions.md)) is compared with the path, which becomes the replacement, where `\\1` is the first group. The query stays.",
		}, rewritePath, func(s *Settings, v *policy.RewritePath) { s.path = v }),
		define(Option{
			Name: "rewrite-host", Group: Routing, On: OnIngress, Value: "a DNS name, perhaps with a port", Example: "internal.example",
			Summary: "Replaces the Host header.",
		}, hostPort, func(s *Settings, v string) { s.host = v }),
		define(Option{
			Name: "server-alias", Group: Routing, On: OnIngress, Own: true, Matches: true, Value: "DNS names, separated by commas; `*.` is a wildcard for one label",
			Example: "www.shop.example", most: mostText,
			Summary: "More names for the host of the Ingress, which must have exactly one.",
		}, listOf(alias), func(s *Settings, v []string) { s.Aliases = v }),
		define(Option{
			Name: "redirect-www", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Redirects the host with `www.` before it to each host of the Ingress, with 308, and the host without it where the Ingress's begins so; path, query and scheme stay. Names that a rule or an alias has are not redirected. List the name in `tls` for its certificate.",
		}, boolean, func(s *Settings, v bool) { s.RedirectWWW = v }),
		define(Option{
			Name: "share-host", Group: Routing, On: OnIngress, Own: true, Matches: true, Value: "namespaces, separated by commas; `*` is all", Example: "checkout, search", most: mostText,
			Summary: "The namespaces that may have paths of the hosts of the Ingress, which belong to its namespace, and of those below its wildcards. With `hosts: owned` in the configuration, no other may; with `hosts: shared`, all may, and the owner is not told of these. See [docs/explanation/hosts.md](../explanation/hosts.md).",
		}, listOf(namespaceName), func(s *Settings, v []string) { s.ShareHost = v }),
		define(Option{
			Name: "ssl-passthrough", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "TLS connections that ask for a host of the Ingress are passed on as they are to the Service of its path `/`, which has the certificate. Nothing that looks at requests works on them; of what protects, `allow-list`, `deny-list`, `allow-countries` and `deny-countries` do, and with any other such option they are refused. Plain HTTP is served as ever; requests by a TLS connection that was made for another host, or by HTTP/3, get 421. The oldest Ingress of a host's owner says whether its connections are passed on.",
		}, boolean, func(s *Settings, v bool) { s.Passthrough = v }),
		define(Option{
			Name: PathType, Group: Routing, On: OnIngress, Matches: true, Value: "`Prefix`, `Exact` or `Regex`", Example: "Exact", Default: "`Prefix`",
			Summary: "What pathType ImplementationSpecific means. With `Regex` such a path is a [regular expression](expressions.md#expressions-as-paths), which is compared with the beginning of the request's path, without regard to case, after exact and prefix paths. `rewrite-path` may then refer to its groups.",
		}, oneOf(map[string]pathType{"Prefix": {}, "Exact": {exact: true}, "Regex": {expressions: true}}), func(s *Settings, v pathType) {
			s.ExactPaths, s.Expressions = v.exact, v.expressions
		}),
	}
}

// Prefix is what the names of all annotations begin with.
const Prefix = "hapsnap.dev/"

// Place is a kind of object that an option may be on.
type Place int

// The places.
const (
	OnIngress Place = 1 << iota
	OnService
	// OnClass are the parameters of an IngressClass: values for those of its
	// Ingresses that have none.
	OnClass
	// OnRoute are HTTPRoutes and GRPCRoutes.
	OnRoute
	// OnGateway are Gateways and ListenerSets: what routes may have, for all that are attached to them.
	OnGateway

	onBoth = OnIngress | OnService
	onAll  = onBoth | OnRoute
)

// String returns the kinds of objects, for people.
func (p Place) String() string {
	var out []string
	for i, name := range []string{"Ingress", "Service", "IngressClass", "HTTPRoute, GRPCRoute", "Gateway, ListenerSet"} {
		if p&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// Group is the part of the document that an option is described in.
type Group string

// The groups, in the order of the document.
const (
	Routing     Group = "Routing"
	Splitting   Group = "Canaries"
	Backends    Group = "Backends"
	Sessions    Group = "Sessions"
	HeaderEdit  Group = "Headers"
	Protecting  Group = "Protection"
	TCPServices Group = "TCP services"
	Snippets    Group = "Snippets"
)

// Groups are the groups in the order of the document.
var Groups = []Group{Routing, Splitting, Backends, Sessions, HeaderEdit, Protecting, TCPServices, Snippets}

// Option is one annotation.
type Option struct {
	Name    string // without [Prefix]
	Group   Group
	On      Place
	Value   string // what may be written, for people
	Example string // that is valid
	Default string // what holds without it, for people
	Summary string
	// Needs is the option without which this one means nothing, or "".
	Needs string
	// Closes says that the option protects something: if its value cannot be
	// used, requests are answered 503 rather than let through.
	Closes bool
	// Own says that the option is about one Ingress, and no default for many.
	Own bool
	// Matches says that the option changes which requests are matched, and
	// nothing that becomes of them.
	Matches bool

	most int // bytes of a value
	read func(string) (apply, error)
}

// apply puts a value that was read into settings.
type apply func(*Settings)

// The most bytes that a value may have: one word, text, or a list.
const (
	mostWord = 1024
	mostText = 8 << 10
	mostList = 64 << 10
)

// define completes an option with what its value is read by, and where the
// result goes.
func define[T any](o Option, parse func(string) (T, error), set func(*Settings, T)) Option {
	o.read = func(text string) (apply, error) {
		value, err := parse(text)
		return func(s *Settings) { set(s, value) }, err
	}
	if o.most == 0 {
		o.most = mostWord
	}
	return o
}

// mayBe reports whether the option may be on an object of a kind.
func (o Option) mayBe(on Place) bool {
	if on == OnClass {
		return o.On&OnIngress != 0 && !o.Own
	}
	if on == OnGateway {
		on = OnRoute
	}
	return o.On&on != 0
}

// parse reads a value.
func (o Option) parse(text string) (apply, error) {
	switch {
	case len(text) > o.most:
		return nil, fault(fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("it may have %d", o.most))
	case !utf8.ValidString(text):
		return nil, fault("is not valid UTF-8", "leave the bytes out")
	case strings.TrimSpace(text) == "":
		return nil, fault("is empty", "write "+o.Value+", or remove the annotation")
	}
	return o.read(text)
}

// valueError is what is wrong with a value. Message follows the value, or the
// part of it that About is.
type valueError struct {
	About, Message, Hint string
}

// Error returns what is wrong, without the value.
func (e *valueError) Error() string { return e.Message }

func fault(message, hint string) error { return &valueError{Message: message, Hint: hint} }

// faultOf is a fault of a part of the value.
func faultOf(part, message, hint string) error { return &valueError{part, message, hint} }

// described returns the message and the hint for an error of a value.
func described(value string, err error) (message, hint string) {
	e := &valueError{Message: err.Error()}
	errors.As(err, &e)
	if e.About != "" {
		value = e.About
	}
	return printable.Quoted(value) + " " + e.Message, e.Hint
}

// Document returns the document that lists all options, in Markdown.
func Document() string {
	var b strings.Builder
	var own []string
	for _, o := range All() {
		if o.Own {
			own = append(own, "`"+o.Name+"`")
		}
	}
	fmt.Fprintf(&b, head, strings.Join(own, ", "))
	for _, group := range Groups {
		fmt.Fprintf(&b, "\n## %s\n\n| annotation | on | value | default | what it does |\n|---|---|---|---|---|\n", group)
		for _, o := range All() {
			if o.Group == group {
				b.WriteString(o.row())
			}
		}
	}
	return b.String()
}

const head = `# Annotations

<!-- Generated from the code of compiler/options. The target generate of the Makefile writes it anew. -->

All names begin with ` + "`" + Prefix + "`" + `. Values are strings: quote numbers and booleans in YAML.

- An option may be on the kinds of objects that its row names: on an Ingress, for its routes; on an HTTPRoute or a GRPCRoute of a Gateway, for its rules; on a Service, for every route to it. The Service wins. For routes of Gateways, what protects something (🔒) on the Service holds besides what does so on the route.
- An option that may not be on a route is an error there. If it protects something (🔒), the rules of the route answer 503. What a rule says itself, such as its timeouts, wins over the option. A GRPCRoute or HTTPRoute with options has backends of its own, and what its options name is of its namespace.
- What may be on a route may be on a Gateway or a ListenerSet too, for all routes that are attached to it: see [Options of Gateways](gateway.md#options-of-gateways-and-listenersets).
- An Ingress with options has HAProxy backends of its own, so that its options cost other routes nothing.
- A ConfigMap that ` + "`" + `spec.parameters` + "`" + ` of an IngressClass names (kind ` + "`" + `ConfigMap` + "`" + `, ` + "`" + `scope: Namespace` + "`" + `) holds defaults for the Ingresses of the class. Its keys are names of annotations that may be on an Ingress, without the prefix; %s cannot have a default. The Ingress wins over it, and the Service over both. What they name, such as a Secret, is of the Ingress's namespace. Parameters that cannot be had might protect something, so that the routes of the class answer 503.
- A wrong value is an error on its object, at its line. The option is then ignored, except where a lock (🔒) follows its name: such an option protects something, and if its value cannot be used, the routes answer 503 rather than let requests through.
- A name that is not known is ignored with a warning.
`

// row returns the option's row of its table.
func (o Option) row() string {
	name := "`" + o.Name + "`"
	if o.Closes {
		name += " 🔒"
	}
	summary := o.Summary
	if o.Needs != "" {
		summary += " Needs `" + o.Needs + "`."
	}
	summary += " Example: `" + strings.ReplaceAll(o.Example, "\n", "`, `") + "`."
	cells := []string{name, o.On.String(), o.Value, o.Default, summary}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
