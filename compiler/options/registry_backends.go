package options

import "github.com/hapsnap/hapsnap/compiler/policy"

// serverOptions say how servers are chosen and checked.
func serverOptions() []Option {
	return []Option{
		define(Option{
			Name: "balance", Group: Backends, On: onBoth, Value: "`roundrobin`, `leastconn`, `random`, `first`, `source`, `uri`, `header NAME` or `query NAME`",
			Example: "leastconn", Default: "`roundrobin`",
			Summary: "How an endpoint is chosen. The last four send what is equal to the same endpoint, by consistent hashing.",
		}, balance, func(s *Settings, v policy.Balance) { s.Upstream.Balance = v }),
		define(Option{
			Name: "max-connections", Group: Backends, On: onBoth, Value: "a number", Example: "100",
			Summary: "The most connections of one HAProxy to one endpoint; further requests wait.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.Upstream.MaxConnections = v }),
		define(Option{
			Name: "max-queue", Group: Backends, On: onBoth, Needs: "max-connections", Value: "a number", Example: "50",
			Summary: "The most requests that wait for an endpoint which their session or the key of `balance` has chosen. Further ones of a session go to another endpoint, others get 503. Where any endpoint will do, requests wait for all together.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.Upstream.MaxQueue = v }),
		define(Option{
			Name: "slow-start", Group: Backends, On: onBoth, Value: valueDuration, Example: "30s",
			Summary: "How long an endpoint that came up takes to get its whole share.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.SlowStart = v }),
		define(Option{
			Name: "retries", Group: Backends, On: onBoth, Value: "a number from 0 to 100", Example: "2", Default: "`3`",
			Summary: "How often a connection that failed is tried again.",
		}, number(0, 100), func(s *Settings, v int) { s.Upstream.Retries = &v }),
		define(Option{
			Name: "health-check-path", Group: Backends, On: onBoth, Value: "a path", Example: "/healthz",
			Summary: "Endpoints are checked with GET of this path; without it, by connecting to them.",
		}, localPath, func(s *Settings, v string) { s.Upstream.Check.Path = v }),
		define(Option{
			Name: "health-check-host", Group: Backends, On: onBoth, Needs: "health-check-path", Value: "a DNS name", Example: "shop.example", Default: "`localhost`",
			Summary: "The Host header of the check.",
		}, hostName, func(s *Settings, v string) { s.Upstream.Check.Host = v }),
		define(Option{
			Name: "health-check-status", Group: Backends, On: onBoth, Needs: "health-check-path", Value: "a status, or a range such as `200-399`", Example: "200", Default: "`200-399`",
			Summary: "The answer of an endpoint that is up.",
		}, statuses, func(s *Settings, v string) { s.Upstream.Check.Status = v }),
		define(Option{
			Name: "health-check-interval", Group: Backends, On: onBoth, Value: valueDuration, Example: "2s", Default: "`5s`",
			Summary: "The time between two checks of an endpoint.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.Check.Interval = v }),
		define(Option{
			Name: "health-check-timeout", Group: Backends, On: onBoth, Value: valueDuration, Example: "1s", Default: "the interval",
			Summary: "How long a check may take once it is connected.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.Check.Timeout = v }),
		define(Option{
			Name: "health-check-rise", Group: Backends, On: onBoth, Value: "a number", Example: "3", Default: "`2`",
			Summary: "How many checks in a row bring an endpoint up.",
		}, number(1, 1000), func(s *Settings, v int) { s.Upstream.Check.Rise = v }),
		define(Option{
			Name: "health-check-fall", Group: Backends, On: onBoth, Value: "a number", Example: "2", Default: "`3`",
			Summary: "How many checks in a row bring an endpoint down.",
		}, number(1, 1000), func(s *Settings, v int) { s.Upstream.Check.Fall = v }),
	}
}

// connectionOptions say how servers are spoken to.
func connectionOptions() []Option {
	return []Option{
		define(Option{
			Name: "backend-protocol", Group: Backends, On: onBoth, Value: "`h1`, `h2` or `grpc`, each perhaps with `-tls`, or `fcgi`", Example: "h2-tls", Default: "as the port's `appProtocol` says, else `h1`",
			Summary: "What is spoken to endpoints. Of a port's `appProtocol`, `kubernetes.io/h2c`, `http2`, `grpc`, `https` and `kubernetes.io/wss` need no annotation. Certificates are not verified unless `backend-verify` or `backend-ca-secret` says so.",
		}, oneOf(protocols), func(s *Settings, v protocol) { s.Upstream.Protocol, s.servers.on = v.name, v.tls }),
		define(Option{
			Name: "send-proxy-protocol", Group: Backends, On: onBoth, Value: "`v1` or `v2`", Example: "v2",
			Summary: "Tells endpoints the client's address by the PROXY protocol.",
		}, oneOf(map[string]int{"v1": 1, "v2": 2}), func(s *Settings, v int) { s.Upstream.ProxyProtocol = v }),
		timeout("timeout-connect", "To connect to an endpoint.", func(t *policy.Timeouts) *policy.Duration { return &t.Connect }),
		timeout("timeout-server", "For an endpoint to send the next part of its answer.", func(t *policy.Timeouts) *policy.Duration { return &t.Server }),
		timeout("timeout-queue", "For a request to wait for a free connection.", func(t *policy.Timeouts) *policy.Duration { return &t.Queue }),
		timeout("timeout-tunnel", "For a WebSocket, or another upgraded connection, to be silent.", func(t *policy.Timeouts) *policy.Duration { return &t.Tunnel }),
		define(Option{
			Name: "timeout-keep-alive", Group: Backends, On: onBoth, Value: valueDuration, Example: "10s", Default: "`5s`",
			Summary: "For a connection to an endpoint to be idle until it begins to be closed. How long clients' connections may idle is for the configuration to say, since they are not of one route.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.Timeouts.KeepAlive = v }),
	}
}

// timeout is an option for one of the timeouts.
func timeout(name, summary string, field func(*policy.Timeouts) *policy.Duration) Option {
	return define(Option{
		Name: name, Group: Backends, On: onBoth, Value: valueDuration, Example: "10s", Default: "the configuration's", Summary: summary,
	}, duration, func(s *Settings, v policy.Duration) { *field(&s.Upstream.Timeouts) = v })
}
