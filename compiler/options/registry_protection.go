package options

import "github.com/hapsnap/hapsnap/compiler/policy"

// aboutLists says what may be listed besides networks.
const aboutLists = "`@NAME/KEY` is a list: the networks under a key of a ConfigMap of the same namespace, separated by commas, spaces or lines, with `#` before comments. `@NAMESPACE/NAME/KEY` is one of another namespace, if the configuration shares it (`shared.networkLists`). An empty list holds nobody; a list that is missing or malformed closes the routes."

// protectionOptions refuse requests.
func protectionOptions() []Option {
	return []Option{
		define(Option{
			Name: "allow-list", Group: Protecting, On: onBoth, Closes: true, Value: valueNetworks, Example: "10.0.0.0/8, fd00::/8, @networks/offices", most: mostList,
			Summary: "Only clients of these networks are served; others get 403. " + aboutLists,
		}, networks, func(s *Settings, v policy.Networks) { s.Protection.Allow = v }),
		define(Option{
			Name: "deny-list", Group: Protecting, On: onBoth, Closes: true, Value: valueNetworks, Example: "192.0.2.0/24", most: mostList,
			Summary: "Clients of these networks get 403, even if they are in `allow-list`.",
		}, networks, func(s *Settings, v policy.Networks) { s.Protection.Deny = v }),
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
		}, networks, func(s *Settings, v policy.Networks) { s.rate.Exempt = v }),
		define(Option{
			Name: "max-body-size", Group: Protecting, On: onBoth, Closes: true, Value: "bytes, or a number with `k`, `m` or `g`", Example: "8m",
			Summary: "The largest body of a request; a larger one gets 413. A body whose length is not announced (chunked, or HTTP/2 without content-length, as gRPC sends) gets 411, since nothing would limit it.",
		}, size, func(s *Settings, v int64) { s.Protection.MaxBody = v }),
	}
}
