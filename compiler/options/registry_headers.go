package options

import "github.com/hapsnap/hapsnap/compiler/policy"

func headerOptions() []Option {
	return []Option{
		define(Option{
			Name: "request-headers", Group: HeaderEdit, On: OnIngress, Value: valueEdits, Example: "set X-Env production\nremove X-Debug", most: mostText,
			Summary: "Edits the headers that endpoints get. `set` replaces all values of a header, `add` leaves them. `copy` sets it to a part of the request: `host` (in lower case, without a port), `uri` (path and query), `query`, `method`, `scheme`, `client-address`, `client-port`, `request-id` or `header NAME`; where the request has none, the header is removed.",
		}, headerEdits, func(s *Settings, v []policy.HeaderEdit) { s.edits[0] = v }),
		define(Option{
			Name: "response-headers", Group: HeaderEdit, On: OnIngress, Value: valueEdits, Example: "set X-Frame-Options DENY\nremove Server", most: mostText,
			Summary: "Edits the headers of every answer, HAProxy's own included. `copy` is from the request, as in `request-headers`.",
		}, headerEdits, func(s *Settings, v []policy.HeaderEdit) { s.edits[1] = v }),
		define(Option{
			Name: "forwarded-for", Group: HeaderEdit, On: OnIngress, Value: "`replace`, `append`, `keep` or `off`", Example: "append", Default: "the configuration's `forwarded.policy`",
			Summary: "What endpoints get as X-Forwarded-For: the address that the request came from; what came, and that address; what came, or that address if none came; nothing, and no X-Real-IP either. What came counts if it is from a network that the configuration trusts, see `forwarded.trusted`; without one, `append` and `keep` are `replace`. See [headers.md](headers.md).",
		}, oneOf(map[string]policy.ForwardedMode{
			"replace": policy.ForwardedReplace, "append": policy.ForwardedAppend, "keep": policy.ForwardedKeep, "off": policy.ForwardedOff,
		}), func(s *Settings, v policy.ForwardedMode) { s.forwardedFor = v }),
		define(Option{
			Name: "rewrite-cookie-path", Group: HeaderEdit, On: OnIngress, Value: "two paths", Example: "/internal /app",
			Summary: "Where the Path of a cookie that an endpoint sets begins with the first path, the second one takes its place.",
		}, cookiePaths, func(s *Settings, v policy.Replacement) { s.cookies.Path = v }),
		define(Option{
			Name: "rewrite-cookie-domain", Group: HeaderEdit, On: OnIngress, Value: "two DNS names", Example: "internal.example shop.example",
			Summary: "Where the Domain of a cookie that an endpoint sets is the first name, with a dot before it or without, it becomes the second one.",
		}, cookieDomains, func(s *Settings, v policy.Replacement) { s.cookies.Domain = v }),
		define(Option{
			Name: "intercept-errors", Group: HeaderEdit, On: OnIngress, Value: "statuses from 400 to 599, separated by commas", Example: "404, 503",
			Summary: "Answers of endpoints with one of these statuses are replaced, headers included, by the page that the configuration has for the status (`errorPages`), else by a short text. The status stays.",
		}, errorStatuses, func(s *Settings, v []int) { s.intercept = v }),
		define(Option{
			Name: "hsts", Group: HeaderEdit, On: OnIngress, Value: "seconds, and perhaps `includeSubDomains` and `preload`", Example: "31536000 includeSubDomains",
			Summary: "Sends Strict-Transport-Security over HTTPS.",
		}, hsts, func(s *Settings, v string) { s.hsts = v }),
	}
}

func corsOptions() []Option {
	return []Option{
		define(Option{
			Name: "cors-allow-origin", Group: HeaderEdit, On: OnIngress, Value: "origins, separated by commas, or `*`; `https://*.` is a wildcard for one label",
			Example: "https://shop.example, https://*.shop.example", most: mostText,
			Summary: "The origins whose pages may read the answers. Turns CORS on: preflight requests are answered by HAProxy.",
		}, allowOrigins, func(s *Settings, v origins) {
			s.cors.AnyOrigin, s.cors.Origins, s.cors.OriginPatterns = v.any, v.plain, v.patterns
		}),
		define(Option{
			Name: "cors-allow-origin-pattern", Group: HeaderEdit, On: OnIngress, Value: "regular expressions, one to a line", Example: `https://[a-z0-9-]+\.preview\.example`, most: mostText,
			Summary: "More origins whose pages may read the answers: those of which the whole matches one of the expressions (a part of [PCRE](expressions.md)), 8 at most. Turns CORS on, as `cors-allow-origin` does, and may stand alone.",
		}, originPatterns, func(s *Settings, v []string) { s.cors.Expressions = v }),
		define(Option{
			Name: "cors-allow-methods", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "methods, separated by commas", Example: "GET, POST",
			Default: "`GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS`", Summary: "The methods that preflight requests are told.",
		}, listOf(methodName), func(s *Settings, v []string) { s.cors.Methods = v }),
		define(Option{
			Name: "cors-allow-headers", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "headers, separated by commas", Example: "Content-Type, X-Token", most: mostText,
			Default: "`Accept, Authorization, Content-Type, X-Requested-With`", Summary: "The headers that preflight requests are told.",
		}, listOf(token), func(s *Settings, v []string) { s.cors.Headers = v }),
		define(Option{
			Name: "cors-expose-headers", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "headers, separated by commas", Example: "X-Total", most: mostText,
			Summary: "The headers of answers that pages may read.",
		}, listOf(token), func(s *Settings, v []string) { s.cors.Expose = v }),
		define(Option{
			Name: "cors-allow-credentials", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Whether pages may send cookies. Refused with the origin `*`.",
		}, boolean, func(s *Settings, v bool) { s.cors.Credentials = v }),
		define(Option{
			Name: "cors-max-age", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "seconds", Example: "3600", Default: "`600`",
			Summary: "How long browsers keep the answer to a preflight request.",
		}, number(1, 1<<31-1), func(s *Settings, v int) { s.cors.MaxAge = v }),
	}
}
