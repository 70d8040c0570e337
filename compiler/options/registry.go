package options

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// All returns every option, in the order of the document.
func All() []Option {
	return slices.Concat(
		routingOptions(), pathOptions(), canaryOptions(), serverOptions(), connectionOptions(), serverTLSOptions(), fastCGIOptions(), sessionOptions(), headerOptions(), corsOptions(),
		protectionOptions(), authenticationOptions(), satisfyOptions(), externalAuthOptions(), clientOptions(),
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
			Summary: "The Service of the same namespace, by its first port unless one is named, that gets the requests of a route whose own Service has no usable endpoint. All that is asked of the route's requests holds. Without it they are answered 503.",
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
			Summary: "More names of the Ingress's host, of which it must have one.",
		}, listOf(alias), func(s *Settings, v []string) { s.Aliases = v }),
		define(Option{
			Name: "redirect-www", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Redirects the host with `www.` before it to each host of the Ingress, with 308, and the host without it where the Ingress's begins so; path, query and scheme stay. A name that a rule or an alias has is left to it. List the name in `tls` for its certificate.",
		}, boolean, func(s *Settings, v bool) { s.RedirectWWW = v }),
		define(Option{
			Name: "share-host", Group: Routing, On: OnIngress, Own: true, Matches: true, Value: "namespaces, separated by commas; `*` is all", Example: "checkout, search", most: mostText,
			Summary: "The namespaces that may have paths of the hosts of the Ingress, which belong to its namespace, and of those below its wildcards. With `hosts: owned` in the configuration, no other may; with `hosts: shared`, all may, and the owner is not told of these. See [docs/explanation/hosts.md](../explanation/hosts.md).",
		}, listOf(namespaceName), func(s *Settings, v []string) { s.ShareHost = v }),
		define(Option{
			Name: "ssl-passthrough", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "TLS connections that ask for a host of the Ingress are passed on as they are to the Service of its path `/`, which has the certificate. Nothing that looks at requests works on them; of what protects, `allow-list` and `deny-list` do, and with any other such option they are refused. Plain HTTP is served as ever; requests by a TLS connection that was made for another host, or by HTTP/3, get 421. The oldest Ingress of a host's owner says whether its connections are passed on.",
		}, boolean, func(s *Settings, v bool) { s.Passthrough = v }),
		define(Option{
			Name: PathType, Group: Routing, On: OnIngress, Matches: true, Value: "`Prefix`, `Exact` or `Regex`", Example: "Exact", Default: "`Prefix`",
			Summary: "What pathType ImplementationSpecific means. With `Regex` such a path is a [regular expression](expressions.md#expressions-as-paths), which is compared with the beginning of the request's path, without regard to case, after exact and prefix paths. `rewrite-path` may then refer to its groups.",
		}, oneOf(map[string]pathType{"Prefix": {}, "Exact": {exact: true}, "Regex": {expressions: true}}), func(s *Settings, v pathType) {
			s.ExactPaths, s.Expressions = v.exact, v.expressions
		}),
	}
}
