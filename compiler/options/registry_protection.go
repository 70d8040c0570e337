package options

import "github.com/hapsnap/hapsnap/compiler/policy"

// aboutLists says what may be listed besides networks.
const aboutLists = "`@NAME/KEY` is a list: the networks under a key of a ConfigMap of the same namespace, separated by commas, spaces or lines, with `#` before comments. `@NAMESPACE/NAME/KEY` is one of another namespace, if the configuration shares it (`shared.networkLists`). An empty list holds nobody; a list that is missing or malformed closes the routes."

// rateLimitConnections is the option that limits what a client has at a time.
const rateLimitConnections = "rate-limit-connections"

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
			Name: rateLimitConnections, Group: Protecting, On: onBoth, Closes: true, Value: "a number", Example: "20",
			Summary: "The most requests of one client at a time, an upgraded connection being one until it ends. Clients are told apart, exempt and refused as `rate-limit-key`, `rate-limit-exempt` and `rate-limit-status` say. Each HAProxy counts for itself, for each Service of the Ingress.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.rate.Connections = v }),
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
			Summary: "The largest body of a request; a larger one gets 413. A body whose length is not announced (chunked, or HTTP/2 without content-length, as docker, git and gRPC send) is counted as it streams, and cut off with 413 when it becomes larger; over HTTP/2 the stream is reset. HAProxy needs Lua for that.",
		}, size, func(s *Settings, v int64) { s.Protection.MaxBody = v }),
	}
}

// authenticationOptions let in only who is known.
func authenticationOptions() []Option {
	return []Option{
		define(Option{
			Name: "auth-basic", Group: Protecting, On: onBoth, Closes: true, Value: "the name of a Secret of the same namespace", Example: "users",
			Summary: "Asks for a name and a password (HTTP basic authentication). The Secret's key `auth` is a file of htpasswd, with hashes of bcrypt, SHA-256 or SHA-512; it is joined when a snapshot is pushed, so that no hash is in a snapshot, and nobody gets in while it is missing. Plain HTTP is redirected first if `ssl-redirect` says so, and preflight requests are answered first if CORS is on. The Authorization header goes on to endpoints; `request-headers` can remove it.",
		}, secretName, func(s *Settings, v string) { s.basic.Secret = v }),
		define(Option{
			Name: "auth-basic-realm", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-basic", Value: "text of ASCII", Example: "Staff only", Default: "`Restricted`",
			Summary: "What users are told that the password is for.",
		}, realm, func(s *Settings, v string) { s.basic.Realm = v }),
	}
}

// externalAuthOptions have a Service say who is let in.
func externalAuthOptions() []Option {
	return []Option{
		define(Option{
			Name: "auth-url", Group: Protecting, On: onBoth, Closes: true, Value: "`http://SERVICE.NAMESPACE.svc:PORT/PATH`, or `http://SERVICE:PORT/PATH` of the same namespace", Example: "http://auth.shop.svc:8080/check",
			Summary: "Asks a Service about every request, without its body. 2xx lets it pass; 401 and 403 are answered to the client with the service's WWW-Authenticate, Location and Set-Cookie; anything else, or no answer in time, is 503. The service is told X-Auth-Request-Redirect (path and query), X-Original-Method, X-Original-URL and X-Original-Host, X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Proto, X-Forwarded-Host and X-Forwarded-For. A Service of another namespace can be asked if the configuration shares it (`shared.authServices`).",
		}, authService, func(s *Settings, v *policy.ExternalAuth) {
			s.external.Service, s.external.Host, s.external.Path = v.Service, v.Host, v.Path
		}),
		define(Option{
			Name: "auth-method", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: "`GET`, `HEAD` or `POST`", Example: "HEAD", Default: "`GET`",
			Summary: "The method of the request to the service.",
		}, oneOf(map[string]string{"GET": "GET", "HEAD": "HEAD", "POST": "POST"}), func(s *Settings, v string) { s.external.Method = v }),
		define(Option{
			Name: "auth-timeout", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: valueDuration, Example: "2s", Default: "`5s`",
			Summary: "How long the service may take to answer, in whole seconds.",
		}, duration, func(s *Settings, v policy.Duration) { s.external.Timeout = v }),
		define(Option{
			Name: "auth-request-headers", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: "names of headers, separated by commas", Example: "Cookie, Authorization", Default: "all", most: mostText,
			Summary: "The headers of the request that the service gets, besides those that say where it came from.",
		}, listOf(carriedHeader), func(s *Settings, v []string) { s.external.RequestHeaders = v }),
		define(Option{
			Name: "auth-response-headers", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: "names of headers, separated by commas", Example: "X-Auth-User, X-Auth-Groups", most: mostText,
			Summary: "The headers of the service's answer that endpoints get. What the client sent of these names is removed, also where it wrote `_` for `-`, and [on other routes to the same Services](headers.md).",
		}, listOf(carriedHeader), func(s *Settings, v []string) { s.external.AnswerHeaders = v }),
		define(Option{
			Name: "auth-signin", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: "a path or a URL", Example: "https://login.example/start",
			Summary: "Where 401 redirects to, with the URL that was asked for as the parameter `rd`. Its own path must not be protected by the same service.",
		}, signIn, func(s *Settings, v string) { s.external.SignIn = v }),
		define(Option{
			Name: "auth-signin-return", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-signin", Value: "`url`, `path` or `none`", Example: "path", Default: "`url`",
			Summary: "What of the URL that was asked for `auth-signin` is told: all of it, its path and query, or nothing.",
		}, oneOf(map[string]policy.Return{"url": policy.ReturnURL, "path": policy.ReturnPath, "none": policy.ReturnNone}),
			func(s *Settings, v policy.Return) { s.external.Return = v }),
		define(Option{
			Name: "auth-signin-parameter", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-signin", Value: "the name of a parameter", Example: "next", Default: "`rd`",
			Summary: "The parameter by which `auth-signin` is told.",
		}, parameterName, func(s *Settings, v string) { s.external.Parameter = v }),
		define(Option{
			Name: "auth-host", Group: Protecting, On: onBoth, Closes: true, Needs: "auth-url", Value: "a DNS name, perhaps with a port, or `request-host`", Example: "login.example", Default: "the host of `auth-url`",
			Summary: "The Host header that the service gets; with `request-host`, that of the client's request.",
		}, authHost, func(s *Settings, v string) { s.authHost = v }),
	}
}
