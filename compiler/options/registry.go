package options

import (
	"net/netip"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// All returns every option, in the order of the document.
func All() []Option {
	return slices.Concat(routingOptions(), serverOptions(), connectionOptions(), headerOptions(), corsOptions(), protectionOptions())
}

const (
	valueBool     = "`true` or `false`"
	valueDuration = "a time such as `30s`"
	valueNetworks = "CIDRs or addresses, separated by commas"
	valueEdits    = "lines of `set NAME VALUE`, `add NAME VALUE`, `remove NAME`"
)

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
			Name: "rewrite-path", Group: Routing, On: OnIngress, Value: "a path, or a regular expression and a replacement",
			Example: `^/old/(.*) /new/\1`,
			Summary: "A path takes the place of what the rule's `path` matched. A regular expression (PCRE, of those that RE2 knows too) is compared with the path, which becomes the replacement, where `\\1` is the first group. The query stays.",
		}, rewritePath, func(s *Settings, v *policy.RewritePath) { s.path = v }),
		define(Option{
			Name: "rewrite-host", Group: Routing, On: OnIngress, Value: "a DNS name, perhaps with a port", Example: "internal.example",
			Summary: "Replaces the Host header.",
		}, hostPort, func(s *Settings, v string) { s.host = v }),
		define(Option{
			Name: "server-alias", Group: Routing, On: OnIngress, Matches: true, Value: "DNS names, separated by commas; `*.` is a wildcard for one label",
			Example: "www.shop.example", most: mostText,
			Summary: "More names of the Ingress's host, of which it must have one.",
		}, listOf(alias), func(s *Settings, v []string) { s.Aliases = v }),
		define(Option{
			Name: "path-type-default", Group: Routing, On: OnIngress, Matches: true, Value: "`Prefix` or `Exact`", Example: "Exact", Default: "`Prefix`",
			Summary: "What pathType ImplementationSpecific means.",
		}, oneOf(map[string]bool{"Prefix": false, "Exact": true}), func(s *Settings, v bool) { s.ExactPaths = v }),
	}
}

func protectionOptions() []Option {
	return []Option{
		define(Option{
			Name: "allow-list", Group: Protecting, On: onBoth, Closes: true, Value: valueNetworks, Example: "10.0.0.0/8, fd00::/8", most: mostList,
			Summary: "Only clients of these networks are served; others get 403.",
		}, listOf(network), func(s *Settings, v []netip.Prefix) { s.Protection.Allow = v }),
		define(Option{
			Name: "deny-list", Group: Protecting, On: onBoth, Closes: true, Value: valueNetworks, Example: "192.0.2.0/24", most: mostList,
			Summary: "Clients of these networks get 403, even if they are in `allow-list`.",
		}, listOf(network), func(s *Settings, v []netip.Prefix) { s.Protection.Deny = v }),
		define(Option{
			Name: "rate-limit", Group: Protecting, On: onBoth, Closes: true, Value: "a number of requests", Example: "100",
			Summary: "The most requests of one client in a period. Requests beyond it are refused, and count. Each HAProxy counts for itself, for each Service of the Ingress, and from zero after a reload.",
		}, number(1, 1_000_000_000), func(s *Settings, v int) { s.rate.Requests = v }),
		define(Option{
			Name: "rate-limit-period", Group: Protecting, On: onBoth, Closes: true, Needs: "rate-limit", Value: valueDuration, Example: "1m", Default: "`1s`",
			Summary: "The period of `rate-limit`.",
		}, duration, func(s *Settings, v policy.Duration) { s.rate.Period = v }),
		define(Option{
			Name: "rate-limit-key", Group: Protecting, On: onBoth, Closes: true, Needs: "rate-limit", Value: "`address`, or `header NAME`", Example: "header X-Api-Key", Default: "`address`",
			Summary: "What tells the clients of `rate-limit` apart. Requests without the header count by their address.",
		}, rateKey, func(s *Settings, v string) { s.rate.Header = v }),
		define(Option{
			Name: "rate-limit-status", Group: Protecting, On: onBoth, Closes: true, Needs: "rate-limit", Value: "`403`, `429` or `503`", Example: "503", Default: "`429`",
			Summary: "The answer to a request beyond `rate-limit`.",
		}, refusal, func(s *Settings, v int) { s.rate.Status = v }),
		define(Option{
			Name: "rate-limit-exempt", Group: Protecting, On: onBoth, Closes: true, Needs: "rate-limit", Value: valueNetworks, Example: "10.0.0.0/8", most: mostList,
			Summary: "Networks whose clients are not counted by `rate-limit`.",
		}, listOf(network), func(s *Settings, v []netip.Prefix) { s.rate.Exempt = v }),
		define(Option{
			Name: "max-body-size", Group: Protecting, On: onBoth, Closes: true, Value: "bytes, or a number with `k`, `m` or `g`", Example: "8m",
			Summary: "The largest body of a request; a larger one gets 413. A body whose length is not announced (chunked, or HTTP/2 without content-length, as gRPC sends) gets 411, since nothing would limit it.",
		}, size, func(s *Settings, v int64) { s.Protection.MaxBody = v }),
	}
}
