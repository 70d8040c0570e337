package options

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// serverOptions say how servers are chosen and checked.
func serverOptions() []Option {
	return []Option{
		define(Option{
			Name: "balance", Group: Backends, On: onAll, Value: "`roundrobin`, `leastconn`, `random`, `first`, `source`, `uri`, `header NAME` or `query NAME`",
			Example: "leastconn", Default: "`roundrobin`",
			Summary: "How HAProxy chooses an endpoint. With the last four, requests with an equal value go to the same endpoint, by consistent hashing.",
		}, balance, func(s *Settings, v policy.Balance) { s.Upstream.Balance = v }),
		define(Option{
			Name: "max-connections", Group: Backends, On: onAll, Value: "a number", Example: "100",
			Summary: "The maximum number of connections of one HAProxy to one endpoint. Further requests wait.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.Upstream.MaxConnections = v }),
		define(Option{
			Name: "max-queue", Group: Backends, On: onAll, Needs: "max-connections", Value: "a number", Example: "50",
			Summary: "The maximum number of requests that wait for one endpoint, which their session or the key of `balance` has chosen. Further requests of a session go to another endpoint; others get 503. Requests that any endpoint can answer wait in a common queue.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.Upstream.MaxQueue = v }),
		define(Option{
			Name: "slow-start", Group: Backends, On: onAll, Value: valueDuration, Example: "30s",
			Summary: "The time over which an endpoint that came up gets more and more requests, up to its full share.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.SlowStart = v }),
		define(Option{
			Name: "retries", Group: Backends, On: onBoth, Value: "a number from 0 to 100", Example: "2", Default: "`3`",
			Summary: "How often HAProxy tries a failed connection again.",
		}, number(0, 100), func(s *Settings, v int) { s.Upstream.Retries = &v }),
		define(Option{
			Name: "health-check-path", Group: Backends, On: onBoth, Value: "a path", Example: "/healthz",
			Summary: "Checks endpoints with GET of this path. Without it, HAProxy checks them by connecting.",
		}, localPath, func(s *Settings, v string) { s.Upstream.Check.Path = v }),
		define(Option{
			Name: "health-check-host", Group: Backends, On: onBoth, Needs: "health-check-path", Value: "a DNS name", Example: "shop.example", Default: "`localhost`",
			Summary: "The Host header of the check.",
		}, hostName, func(s *Settings, v string) { s.Upstream.Check.Host = v }),
		define(Option{
			Name: "health-check-status", Group: Backends, On: onBoth, Needs: "health-check-path", Value: "a status, or a range such as `200-399`", Example: "200", Default: "`200-399`",
			Summary: "The status with which an endpoint counts as up.",
		}, statuses, func(s *Settings, v string) { s.Upstream.Check.Status = v }),
		define(Option{
			Name: "health-check-interval", Group: Backends, On: onBoth, Value: valueDuration, Example: "2s", Default: "`5s`",
			Summary: "The time between two checks of an endpoint, at least `1s`.",
		}, checkInterval, func(s *Settings, v policy.Duration) { s.Upstream.Check.Interval = v }),
		define(Option{
			Name: "health-check-timeout", Group: Backends, On: onBoth, Value: valueDuration, Example: "1s", Default: "the interval",
			Summary: "How long a check may take after it connected.",
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
			Summary: "The protocol that HAProxy uses with endpoints. For a port's `appProtocol` `kubernetes.io/h2c`, `http2`, `grpc`, `https` and `kubernetes.io/wss` need no annotation. Certificates are not verified unless `backend-verify` or `backend-ca-secret` says so.",
		}, oneOf(protocols), func(s *Settings, v protocol) { s.Upstream.Protocol, s.servers.on = v.name, v.tls }),
		define(Option{
			Name: "send-proxy-protocol", Group: Backends, On: onBoth, Value: "`v1` or `v2`", Example: "v2",
			Summary: "Sends the client's address to endpoints with the PROXY protocol.",
		}, oneOf(map[string]int{"v1": 1, "v2": 2}), func(s *Settings, v int) { s.Upstream.ProxyProtocol = v }),
		timeout("timeout-connect", "How long connecting to an endpoint may take.", func(t *policy.Timeouts) *policy.Duration { return &t.Connect }),
		timeout("timeout-server", "How long an endpoint may take to send the next part of its answer.", func(t *policy.Timeouts) *policy.Duration { return &t.Server }),
		timeout("timeout-queue", "How long a request may wait for a free connection.", func(t *policy.Timeouts) *policy.Duration { return &t.Queue }),
		timeout("timeout-tunnel", "How long a WebSocket, or another upgraded connection, may be silent.", func(t *policy.Timeouts) *policy.Duration { return &t.Tunnel }),
		define(Option{
			Name: "timeout-keep-alive", Group: Backends, On: onAll, Value: valueDuration, Example: "10s", Default: "`5s`",
			Summary: "How long a connection to an endpoint may be idle before HAProxy begins to close it. The configuration sets how long connections of clients may be idle, since these do not belong to one route.",
		}, duration, func(s *Settings, v policy.Duration) { s.Upstream.Timeouts.KeepAlive = v }),
	}
}

// timeout is an option for one of the timeouts.
func timeout(name, summary string, field func(*policy.Timeouts) *policy.Duration) Option {
	return define(Option{
		Name: name, Group: Backends, On: onAll, Value: valueDuration, Example: "10s", Default: "the configuration's", Summary: summary,
	}, duration, func(s *Settings, v policy.Duration) { *field(&s.Upstream.Timeouts) = v })
}

// balance reads an algorithm, and its key.
func balance(text string) (policy.Balance, error) {
	words := strings.Fields(text)
	b := policy.Balance{By: policy.Algorithm(words[0])}
	const hint = "use roundrobin, leastconn, random, first, source, uri, header NAME or query NAME"
	switch {
	case b.By.IsWhole():
		if len(words) > 1 {
			return b, fault("has a word too many", hint)
		}
		return b, nil
	case b.By.IsNamed():
		if len(words) != 2 {
			return b, fault("needs one name", hint)
		}
		b.Key = words[1]
		if !keyForm.MatchString(b.Key) {
			return b, faultOf(b.Key, "is not a name", "use letters, digits, - and _")
		}
		return b, nil
	}
	return b, fault("is not an algorithm", hint)
}

// keyForm is what may stand in parentheses in haproxy.cfg.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// headerValueForm is what a header can be compared with. A brace would end the
// condition.
var headerValueForm = regexp.MustCompile(`^[A-Za-z0-9._~:/@+=,;*-]{1,200}$`)

// protocol is what is spoken to servers, and whether over TLS.
type protocol struct {
	name policy.Protocol
	tls  bool
}

var protocols = map[string]protocol{
	"h1": {policy.HTTP1, false}, "h1-tls": {policy.HTTP1, true},
	"h2": {policy.HTTP2, false}, "h2-tls": {policy.HTTP2, true},
	"grpc": {policy.GRPC, false}, "grpc-tls": {policy.GRPC, true},
	"fcgi": {policy.FCGI, false},
}

// serverName reads the name that is sent as SNI.
func serverName(text string) (policy.TLS, error) {
	if text == requestHost {
		return policy.TLS{OfRequest: true}, nil
	}
	name, err := hostName(text)
	return policy.TLS{ServerName: name}, err
}

var statusForm = regexp.MustCompile(`^([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?$`)

// statuses reads a status or a range of them.
func statuses(text string) (string, error) {
	m := statusForm.FindStringSubmatch(text)
	if m == nil || (m[2] != "" && m[2] < m[1]) {
		return "", fault("is not a status", "use one such as 200, or a range such as 200-399")
	}
	return text, nil
}

// rateKey reads what tells clients apart: "" is the address.
func rateKey(text string) (string, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && words[0] == "address":
		return "", nil
	case len(words) == 2 && words[0] == "header" && keyForm.MatchString(words[1]):
		return words[1], nil
	}
	return "", fault("is not possible", "use address, or header and its name")
}

// refusal reads a status to refuse with.
func refusal(text string) (int, error) {
	code, err := strconv.Atoi(text)
	if err != nil || (text != "403" && text != "429" && text != "503") {
		return 0, fault("is not possible", "use 403, 429 or 503")
	}
	return code, nil
}

// appProtocols are the values of a Service port's appProtocol that ask for
// another protocol than HTTP/1.1 in the clear: those of Kubernetes, of IANA, and
// the names that implementations have in common (Kubernetes documentation,
// Services, "Application protocol").
var appProtocols = map[string]string{
	"kubernetes.io/h2c": "h2", "h2c": "h2", "http2": "h2", "grpc": "grpc",
	"https": "h1-tls", "kubernetes.io/wss": "h1-tls", "wss": "h1-tls",
}

// AppProtocol returns the options that the appProtocol of a Service's port stands
// for, for those who have not said otherwise. A value that is not known asks for
// nothing.
func AppProtocol(name string) Values {
	protocol, ok := appProtocols[name]
	if !ok {
		return Values{}
	}
	values, _ := Read(OnService, map[string]string{Prefix + "backend-protocol": protocol})
	return values
}

// SameProtocol reports whether two values of appProtocol ask for the same.
func SameProtocol(a, b string) bool { return appProtocols[a] == appProtocols[b] }

// fastCGIOptions say which script of a FastCGI application a path is for.
func fastCGIOptions() []Option {
	return []Option{
		define(Option{
			Name: "fcgi-root", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "a directory", Example: "/srv/app/public", Default: "`/var/www/html`",
			Summary: "The directory of a FastCGI application's scripts, as the application sees it.",
		}, scriptRoot, func(s *Settings, v string) { s.fastCGI.Root = v }),
		define(Option{
			Name: "fcgi-index", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "the name of a script", Example: "app.php", Default: "`index.php`",
			Summary: "The script of a FastCGI application for paths that end in `/`.",
		}, scriptName, func(s *Settings, v string) { s.fastCGI.Index = v }),
		define(Option{
			Name: "fcgi-path-info", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "a regular expression with one or two groups", Example: `^(/.+\.php)(/.*)?$`,
			Summary: "Divides a decoded path into the script and `PATH_INFO` (a part of [PCRE](expressions.md)). Without it the whole path is the script.",
		}, pathInfo, func(s *Settings, v string) { s.fastCGI.PathInfo = v }),
		define(Option{
			Name: "fcgi-params", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "lines of `NAME VALUE`", Example: "APP_ENV production\nSCRIPT_FILENAME /srv/app/front.php", most: mostText,
			Summary: "Variables for a FastCGI application. They replace those of the same name that HAProxy would send.",
		}, scriptParams, func(s *Settings, v []string) { s.fastCGI.Params = v }),
	}
}

var (
	scriptRootForm = regexp.MustCompile(`^(/[A-Za-z0-9._+@-]+)*/?$`)
	scriptNameForm = regexp.MustCompile(`^[A-Za-z0-9._+@-]+$`)
)

// scriptRoot reads a directory.
func scriptRoot(text string) (string, error) {
	if !scriptRootForm.MatchString(text) {
		return "", fault("is not a directory", "use an absolute path of letters, digits and . _ + @ -, such as /var/www/html")
	}
	if trimmed := strings.TrimSuffix(text, "/"); trimmed != "" {
		return trimmed, nil
	}
	return "/", nil
}

// scriptName reads the name of a file.
func scriptName(text string) (string, error) {
	if !scriptNameForm.MatchString(text) {
		return "", fault("is not the name of a script", "use letters, digits and . _ + @ -, such as index.php")
	}
	return text, nil
}

// pathInfo reads the expression that divides a path.
func pathInfo(text string) (string, error) {
	n, err := groupsOf(text)
	if err != nil {
		return "", err
	}
	if n < 1 || n > 2 {
		return "", fault(fmt.Sprintf("has %d groups", n), "the first one in parentheses is the script, the second one PATH_INFO")
	}
	return text, nil
}

// paramNameForm is the name of a variable of CGI. HTTP_ is what headers of requests become.
var paramNameForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// settingPHP are variables from which PHP takes settings, such as files to run before all others. With them, the author of
// an Ingress could run any code in the application's pods.
var settingPHP = []string{"PHP_VALUE", "PHP_ADMIN_VALUE"}

// scriptParams reads variables: names and values, by turns.
func scriptParams(text string) ([]string, error) {
	var out []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		switch {
		case name == "":
			continue
		case !paramNameForm.MatchString(name) || strings.HasPrefix(name, "HTTP_"):
			return nil, faultOf(name, "is not the name of a variable", "use capital letters, digits and _, and not HTTP_, which is for headers of requests")
		case slices.Contains(settingPHP, name):
			return nil, faultOf(name, "configures PHP, and could make it run the content of a request", "configure PHP where it runs")
		case value == "":
			return nil, faultOf(line, "has no value", "write NAME VALUE, one to a line")
		}
		for _, r := range value {
			if r < ' ' || r >= 0x7f {
				return nil, faultOf(value, fmt.Sprintf("holds %q", r), "use printable ASCII")
			}
		}
		out = append(out, name, value)
	}
	if len(out) > 2*mostEdits {
		return nil, fault(fmt.Sprintf("has %d lines", len(out)/2), fmt.Sprintf("use %d at most", mostEdits))
	}
	return out, nil
}

// registeredFastCGI returns the options of FastCGI, made once.
var registeredFastCGI = sync.OnceValue(fastCGIOptions)

// fcgi joins the options of FastCGI.
func (r *resolution) fcgi() {
	s := &r.settings
	if s.Upstream.Protocol == policy.FCGI {
		s.Upstream.FastCGI = &policy.FastCGI{Root: "/var/www/html", Index: "index.php", PathInfo: s.fastCGI.PathInfo, Params: s.fastCGI.Params}
		if s.fastCGI.Root != "" {
			s.Upstream.FastCGI.Root = s.fastCGI.Root
		}
		if s.fastCGI.Index != "" {
			s.Upstream.FastCGI.Index = s.fastCGI.Index
		}
		return
	}
	for _, o := range registeredFastCGI() {
		if r.has(o.Name) && r.has(o.Needs) {
			r.report(diag.Warning, o.Name, "has no effect without FastCGI", "set "+Prefix+"backend-protocol to fcgi")
		}
	}
}

// Canary is how an Ingress shares the routes of another one.
type Canary struct {
	// Weight is how many requests of a hundred it gets; nil: weight decides of
	// none.
	Weight *int
	// Header and Cookie are by what a request says whether it gets it.
	Header HeaderRule
	Cookie string
}

// HeaderRule names a header and the value that leads to the canary. Without a
// value, "always" does so, and "never" leads away from it. With a Pattern, values that match it
// lead to the canary, and nothing else in the header decides.
type HeaderRule struct{ Name, Value, Pattern string }

// canaryOption is the option that makes an Ingress a canary.
const canaryOption = "canary"

// IsCanary reports whether annotations ask to share the routes of another Ingress instead of claiming them. A value that
// cannot be read counts as true, since a mistake must not take the routes of others.
func IsCanary(annotations map[string]string) bool {
	text, there := annotations[Prefix+canaryOption]
	return there && text != "false"
}

// canaryOptions share out the requests of a route.
func canaryOptions() []Option {
	return []Option{
		define(Option{
			Name: canaryOption, Group: Splitting, On: OnIngress, Own: true, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Makes the Ingress a canary: with another Ingress of its namespace, it shares the routes that have the same host, path and pathType, and has none of its own. The other's options hold for its requests, protection above all; options of its own do not count, and one that protects something keeps it from being used, as do options of its Service that the other does not have. Its `tls` and `defaultBackend` are not read. Of several canaries of a route, the oldest is used. While its Service has no usable endpoint, the other Ingress gets all.",
		}, boolean, func(*Settings, bool) {}),
		define(Option{
			Name: "canary-weight", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a number from 0 to 100", Example: "10",
			Summary: "How many of a hundred requests the canary gets, if neither header nor cookie decides. The rest goes to the other Ingress's Service; while that has no usable endpoint, the canary gets all, unless its weight is 0. With 100 the other gets none, even if the canary is down. With `balance` `random`, or one that goes by a hash, the weight holds about, of a hash for its values. `balance` `leastconn` and `first` know no weights: `random` prefers endpoints with few connections too.",
		}, number(0, 100), func(s *Settings, v int) { s.Canary.Weight = &v }),
		define(Option{
			Name: "canary-by-header", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a name, or a name and a value, as `NAME VALUE` or `NAME=VALUE`", Example: "X-Canary",
			Summary: "The header that decides first: requests with `always` in it go to the canary, requests with `never` do not. If a value is given, requests with exactly that value go to the canary, `always` and `never` mean nothing, and cookie and weight decide about all other requests. Of a header that is there several times, the last one counts.",
		}, headerRule, func(s *Settings, v HeaderRule) { s.Canary.Header.Name, s.Canary.Header.Value = v.Name, v.Value }),
		define(Option{
			Name: "canary-by-header-pattern", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a regular expression", Example: "^beta-[0-9]+$",
			Summary: "Requests whose header `canary-by-header`, in its first 1024 bytes, matches this expression (a part of [PCRE](expressions.md)) go to the canary; whether they do is up to nothing else in the header. A value beside the header's name comes first, and the expression does not count then.",
		}, func(text string) (string, error) { _, err := groupsOf(text); return text, err }, func(s *Settings, v string) { s.Canary.Header.Pattern = v }),
		define(Option{
			Name: "canary-by-cookie", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "the name of a cookie", Example: "canary",
			Summary: "The cookie that decides where the header does not: `always` goes to the canary, `never` does not.",
		}, cookieName, func(s *Settings, v string) { s.Canary.Cookie = v }),
	}
}

// headerRule reads a name and perhaps a value.
func headerRule(text string) (HeaderRule, error) {
	name, value, _ := strings.Cut(text, " ")
	if before, after, both := strings.Cut(name, "="); both && value == "" {
		name, value = before, after
	}
	r := HeaderRule{Name: name, Value: strings.TrimSpace(value)}
	switch {
	case !keyForm.MatchString(r.Name):
		return r, faultOf(name, "is not the name of a header", "use letters, digits and -")
	case r.Name == text:
		return r, nil
	case !headerValueForm.MatchString(r.Value):
		return r, faultOf(r.Value, "is not a value that can be compared", "use letters, digits and -._~:/@+=,;*")
	}
	return r, nil
}

// sessionOptions keep sessions with endpoints.
func sessionOptions() []Option {
	return []Option{
		define(Option{
			Name: "affinity", Group: Sessions, On: onBoth, Value: "`cookie` or `none`", Example: "cookie", Default: "`none`",
			Summary: "`cookie` keeps a session with its endpoint as long as the endpoint exists, on every HAProxy. An endpoint that is terminating gets the requests of its sessions, and no others while one is ready; the sessions of one that is down go to another, and get its cookie.",
		}, oneOf(map[string]bool{"cookie": true, "none": false}), func(s *Settings, v bool) { s.sticky = v }),
		define(Option{
			Name: "affinity-cookie-name", Group: Sessions, On: onBoth, Needs: "affinity", Value: "the name of a cookie", Example: "session", Default: "`hapsnap-` and a hash of the Service's name and port",
			Summary: "The cookie's name. Services of one host need different names; otherwise each ends the sessions of the others.",
		}, cookieName, func(s *Settings, v string) { s.affinity.Cookie = v }),
		define(Option{
			Name: "affinity-cookie-domain", Group: Sessions, On: onBoth, Needs: "affinity", Value: "a DNS name of two labels or more", Example: "shop.example", Default: "the request's host alone",
			Summary: "The domain whose hosts get the cookie.",
		}, cookieDomain, func(s *Settings, v string) { s.affinity.Domain = v }),
		define(Option{
			Name: "affinity-cookie-same-site", Group: Sessions, On: onBoth, Needs: "affinity", Value: "`None`, `Lax` or `Strict`", Example: "Lax", Default: "the browser's",
			Summary: "Whether browsers send the cookie with requests from other sites. With `None` browsers send it over HTTPS only.",
		}, oneOf(map[string]policy.SameSite{"None": policy.SameSiteNone, "Lax": "Lax", "Strict": "Strict"}),
			func(s *Settings, v policy.SameSite) { s.affinity.SameSite = v }),
		define(Option{
			Name: "affinity-cookie-path", Group: Sessions, On: onBoth, Needs: "affinity", Value: "a path", Example: "/shop", Default: "`/`",
			Summary: "The path below which browsers send the cookie. Ingresses of one host that give their cookies one name need different ones.",
		}, cookiePath, func(s *Settings, v string) { s.affinity.Path = v }),
		define(Option{
			Name: "affinity-cookie-max-age", Group: Sessions, On: onBoth, Needs: "affinity", Value: "seconds", Example: "172800", Default: "until the browser ends",
			Summary: "How long browsers keep the cookie.",
		}, number(1, 1<<31-1), func(s *Settings, v int) { s.affinity.MaxAge = v }),
		define(Option{
			Name: "affinity-cookie-secure", Group: Sessions, On: onBoth, Needs: "affinity", Value: "`true`, `false` or `auto`", Example: "auto", Default: "`true` with `SameSite=None`, else `false`",
			Summary: "Whether browsers send the cookie over HTTPS only. `auto` asks them to where it was set over HTTPS.",
		}, oneOf(map[string]policy.HTTPSOnly{"true": policy.HTTPSAlways, "false": policy.HTTPSNever, "auto": policy.HTTPSAuto}),
			func(s *Settings, v policy.HTTPSOnly) { s.affinity.HTTPSOnly = v }),
		define(Option{
			Name: "affinity-cookie-preserve", Group: Sessions, On: onBoth, Needs: "affinity", Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Leaves the cookie alone when the endpoint itself sets one of this name, so that it can end a session.",
		}, boolean, func(s *Settings, v bool) { s.affinity.Preserve = v }),
	}
}

// cookieName reads the name of a cookie.
func cookieName(text string) (string, error) {
	if !keyForm.MatchString(text) {
		return "", fault("is not the name of a cookie", "use letters, digits, - and _")
	}
	return text, nil
}

// cookiePathForm leaves out what ends an attribute of a cookie, and what HAProxy
// would expand.
var cookiePathForm = regexp.MustCompile(`^/[A-Za-z0-9/._~-]*$`)

// cookiePath reads the path of a cookie.
func cookiePath(text string) (string, error) {
	if _, err := localPath(text); err != nil {
		return "", err
	}
	if !cookiePathForm.MatchString(text) {
		return "", fault("is not the path of a cookie", "use letters, digits and /-._~")
	}
	return text, nil
}

// cookieDomain reads a domain. Browsers refuse one of a single label.
func cookieDomain(text string) (string, error) {
	if _, err := hostName(text); err != nil || !strings.Contains(text, ".") {
		return "", fault("is not the domain of a cookie", "use a DNS name in lower case with a dot in it, such as shop.example")
	}
	return text, nil
}

// cookiePaths reads a path of cookies, and what takes its place.
func cookiePaths(text string) (policy.Replacement, error) { return replacement(text, cookiePath) }

// cookieDomains reads a domain of cookies, and what it becomes.
func cookieDomains(text string) (policy.Replacement, error) {
	return replacement(text, func(word string) (string, error) { return hostName(strings.TrimPrefix(word, ".")) })
}

// replacement reads two words.
func replacement(text string, read func(string) (string, error)) (policy.Replacement, error) {
	words := strings.Fields(text)
	if len(words) != 2 {
		return policy.Replacement{}, fault("is not two words", "write what is replaced, and what takes its place")
	}
	from, err := read(words[0])
	if err != nil {
		return policy.Replacement{}, faultOf(words[0], err.Error(), "")
	}
	to, err := read(words[1])
	if err != nil {
		return policy.Replacement{}, faultOf(words[1], err.Error(), "")
	}
	return policy.Replacement{From: from, To: to}, nil
}
