package options

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// aboutLists says what may be listed besides networks.
const aboutLists = "`@NAME/KEY` is a list: the networks under a key of a ConfigMap of the same namespace, separated by commas, spaces or lines, with `#` before comments. `@NAMESPACE/NAME/KEY` is one of another namespace, if the configuration shares it (`shared.networkLists`). An empty list contains nobody. If a list is missing or malformed, the routes are closed."

// rateLimitConnections is the option that limits what a client has at a time.
const rateLimitConnections = "rate-limit-connections"

// protectionOptions refuse requests.
func protectionOptions() []Option {
	return []Option{
		define(Option{
			Name: "allow-list", Group: Protecting, On: onAll, Closes: true, Value: valueNetworks, Example: "10.0.0.0/8, fd00::/8, @networks/offices", most: mostList,
			Summary: "Only clients of these networks are served; others get 403. " + aboutLists,
		}, networks, func(s *Settings, v policy.Networks) { s.Protection.Allow = v }),
		define(Option{
			Name: "deny-list", Group: Protecting, On: onAll, Closes: true, Value: valueNetworks, Example: "192.0.2.0/24", most: mostList,
			Summary: "Clients of these networks get 403, even if they are in `allow-list`.",
		}, networks, func(s *Settings, v policy.Networks) { s.Protection.Deny = v }),
		define(Option{
			Name: AllowCountries, Group: Protecting, On: onAll, Closes: true, Value: valueCountries, Example: "DE, AT, US-CA", most: mostText,
			Summary: "Only clients of these countries are served, in addition to what `allow-list` requires; others get 403. Clients whose address is not in the administrator's [list](../how-to/countries.md) get 403 too, unless `ZZ` is named. A country includes all of its regions. Without that list, the routes are closed.",
		}, countries, func(s *Settings, v policy.Countries) { s.Protection.AllowCountries = v }),
		define(Option{
			Name: DenyCountries, Group: Protecting, On: onAll, Closes: true, Value: valueCountries, Example: "XA, ZZ", most: mostText,
			Summary: "Clients of these countries get 403, even if they are in `allow-list` or `allow-countries`. `ZZ` means clients whose address is not in the administrator's [list](../how-to/countries.md). Without that list, the routes are closed.",
		}, countries, func(s *Settings, v policy.Countries) { s.Protection.DenyCountries = v }),
		define(Option{
			Name: "rate-limit", Group: Protecting, On: onAll, Closes: true, Value: "a number of requests", Example: "100",
			Summary: "The maximum number of requests of one client in a period. Further requests are refused, and count too. Each HAProxy counts separately, for each Service of the Ingress, and starts from zero after a reload. It keeps the counts of [100,000 clients](bounds.md#how-many-clients-rate-limits-count), or of fewer if the namespace has many limits.",
		}, number(1, 1_000_000_000), func(s *Settings, v int) { s.rate.Requests = v }),
		define(Option{
			Name: "rate-limit-period", Group: Protecting, On: onAll, Closes: true, Needs: "rate-limit", Value: valueDuration, Example: "1m", Default: "`1s`",
			Summary: "The period of `rate-limit`.",
		}, duration, func(s *Settings, v policy.Duration) { s.rate.Period = v }),
		define(Option{
			Name: rateLimitConnections, Group: Protecting, On: onAll, Closes: true, Value: "a number", Example: "20",
			Summary: "The maximum number of requests of one client at the same time. An upgraded connection counts as one request until it ends. `rate-limit-key`, `rate-limit-exempt` and `rate-limit-status` apply here too. Each HAProxy counts separately, for each Service of the Ingress.",
		}, number(1, 1_000_000), func(s *Settings, v int) { s.rate.Connections = v }),
		define(Option{
			Name: "rate-limit-key", Group: Protecting, On: onAll, Closes: true, Needs: "rate-limit", Value: "`address`, or `header NAME`", Example: "header X-Api-Key", Default: "`address`",
			Summary: "How `rate-limit` distinguishes clients: by their address, or by the value of a header. Requests without the header count by their address.",
		}, rateKey, func(s *Settings, v string) { s.rate.Header = v }),
		define(Option{
			Name: "rate-limit-status", Group: Protecting, On: onAll, Closes: true, Needs: "rate-limit", Value: "`403`, `429` or `503`", Example: "503", Default: "`429`",
			Summary: "The answer to a request beyond `rate-limit`.",
		}, refusal, func(s *Settings, v int) { s.rate.Status = v }),
		define(Option{
			Name: "rate-limit-exempt", Group: Protecting, On: onAll, Closes: true, Needs: "rate-limit", Value: valueNetworks, Example: "10.0.0.0/8", most: mostList,
			Summary: "Networks whose clients `rate-limit` does not count.",
		}, networks, func(s *Settings, v policy.Networks) { s.rate.Exempt = v }),
		define(Option{
			Name: "max-body-size", Group: Protecting, On: onAll, Closes: true, Value: "bytes, or a number with `k`, `m` or `g`", Example: "8m",
			Summary: "The maximum size of a request's body; a larger one gets 413. A body without an announced length (chunked, or HTTP/2 without content-length, as docker, git and gRPC send) is counted while it streams, and cut off with 413 once it is larger; over HTTP/2 the stream is reset. HAProxy needs Lua for that.",
		}, size, func(s *Settings, v int64) { s.Protection.MaxBody = v }),
	}
}

// authenticationOptions let in only who is known.
func authenticationOptions() []Option {
	return []Option{
		define(Option{
			Name: "auth-basic", Group: Protecting, On: onAll, Closes: true, Value: "the name of a Secret of the same namespace", Example: "users",
			Summary: "Asks for a name and a password (HTTP basic authentication). The Secret's key `auth` is a file of htpasswd, with hashes of bcrypt, SHA-256 or SHA-512; the pusher inserts it, so that no snapshot has a hash. While it is missing, nobody gets in. Plain HTTP is redirected first if `ssl-redirect` says so, and preflight requests are answered first if CORS is on. The Authorization header goes on to endpoints; `request-headers` can remove it.",
		}, secretName, func(s *Settings, v string) { s.basic.Secret = v }),
		define(Option{
			Name: "auth-basic-realm", Group: Protecting, On: onAll, Closes: true, Needs: "auth-basic", Value: "text of ASCII", Example: "Staff only", Default: "`Restricted`",
			Summary: "The realm that browsers show when they ask for the password.",
		}, realm, func(s *Settings, v string) { s.basic.Realm = v }),
	}
}

// externalAuthOptions have a Service say who is let in.
func externalAuthOptions() []Option {
	return []Option{
		define(Option{
			Name: "auth-url", Group: Protecting, On: onAll, Closes: true, Value: "`http://SERVICE.NAMESPACE.svc:PORT/PATH`, or `http://SERVICE:PORT/PATH` of the same namespace", Example: "http://auth.shop.svc:8080/check",
			Summary: "Asks a Service about every request, without its body. 2xx lets it pass; 401 and 403 are answered to the client with the service's WWW-Authenticate, Location and Set-Cookie; anything else, or no answer in time, is 503. The service is told X-Auth-Request-Redirect (path and query), X-Original-Method, X-Original-URL and X-Original-Host, X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Proto, X-Forwarded-Host and X-Forwarded-For. A Service of another namespace can be asked if the configuration shares it (`shared.authServices`).",
		}, authService, func(s *Settings, v *policy.ExternalAuth) {
			s.external.Service, s.external.Host, s.external.Path = v.Service, v.Host, v.Path
		}),
		define(Option{
			Name: "auth-method", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: "`GET`, `HEAD` or `POST`", Example: "HEAD", Default: "`GET`",
			Summary: "The method of the request to the service.",
		}, oneOf(map[string]string{"GET": "GET", "HEAD": "HEAD", "POST": "POST"}), func(s *Settings, v string) { s.external.Method = v }),
		define(Option{
			Name: "auth-timeout", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: valueDuration, Example: "2s", Default: "`5s`",
			Summary: "How long the service may take to answer, in whole seconds.",
		}, duration, func(s *Settings, v policy.Duration) { s.external.Timeout = v }),
		define(Option{
			Name: "auth-request-headers", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: "names of headers, separated by commas", Example: "Cookie, Authorization", Default: "all", most: mostText,
			Summary: "The headers of the request that the service gets, besides those that say where the request came from.",
		}, listOf(carriedHeader), func(s *Settings, v []string) { s.external.RequestHeaders = v }),
		define(Option{
			Name: "auth-response-headers", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: "names of headers, separated by commas", Example: "X-Auth-User, X-Auth-Groups", most: mostText,
			Summary: "The headers of the service's answer that endpoints get. What the client sent of these names is removed, also where it wrote `_` for `-`, and [on other routes to the same Services](headers.md).",
		}, listOf(carriedHeader), func(s *Settings, v []string) { s.external.AnswerHeaders = v }),
		define(Option{
			Name: "auth-signin", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: "a path or a URL", Example: "https://login.example/start",
			Summary: "Where a client that gets 401 is redirected to, with the requested URL in the parameter `rd`. Its own path must not be protected by the same service.",
		}, signIn, func(s *Settings, v string) { s.external.SignIn = v }),
		define(Option{
			Name: "auth-signin-return", Group: Protecting, On: onAll, Closes: true, Needs: "auth-signin", Value: "`url`, `path` or `none`", Example: "path", Default: "`url`",
			Summary: "What `auth-signin` gets of the requested URL: all of it, its path and query, or nothing.",
		}, oneOf(map[string]policy.Return{"url": policy.ReturnURL, "path": "path", "none": "none"}),
			func(s *Settings, v policy.Return) { s.external.Return = v }),
		define(Option{
			Name: "auth-signin-parameter", Group: Protecting, On: onAll, Closes: true, Needs: "auth-signin", Value: "the name of a parameter", Example: "next", Default: "`rd`",
			Summary: "The parameter with which `auth-signin` gets the requested URL.",
		}, parameterName, func(s *Settings, v string) { s.external.Parameter = v }),
		define(Option{
			Name: "auth-host", Group: Protecting, On: onAll, Closes: true, Needs: "auth-url", Value: "a DNS name, perhaps with a port, or `request-host`", Example: "login.example", Default: "the host of `auth-url`",
			Summary: "The Host header that the service gets; with `request-host`, that of the client's request.",
		}, authHost, func(s *Settings, v string) { s.authHost = v }),
	}
}

// networks reads networks and names of lists.
func networks(text string) (policy.Networks, error) {
	var out policy.Networks
	_, err := listOf(func(word string) (struct{}, error) {
		name, isList := strings.CutPrefix(word, "@")
		if isList {
			list, err := networkList(name)
			out.Lists = append(out.Lists, list)
			return struct{}{}, err
		}
		prefix, err := network(word)
		out.Prefixes = append(out.Prefixes, prefix)
		return struct{}{}, err
	})(text)
	return out, err
}

// network reads a CIDR or an address.
func network(word string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(word); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(word)
	if err != nil {
		return netip.Prefix{}, fault("is not a network", "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses")
	}
	if p.Masked() != p {
		return netip.Prefix{}, fault("has bits beyond its length", "it would be "+p.Masked().String())
	}
	return p, nil
}

// networkList reads the name of a list, NAME/KEY or NAMESPACE/NAME/KEY.
func networkList(name string) (policy.NetworkList, error) {
	parts := strings.Split(name, "/")
	list := policy.NetworkList{ConfigMap: parts[0], Key: parts[len(parts)-1]}
	wrong := len(parts) != 2 && len(parts) != 3
	if len(parts) == 3 {
		list.Namespace, list.ConfigMap = parts[0], parts[1]
		wrong = len(validation.IsDNS1123Label(list.Namespace)) > 0
	}
	if wrong || len(validation.IsDNS1123Subdomain(list.ConfigMap)) > 0 || len(validation.IsConfigMapKey(list.Key)) > 0 {
		return list, fault("is not the name of a list", "use @CONFIGMAP/KEY, or @NAMESPACE/CONFIGMAP/KEY")
	}
	return list, nil
}

// LineError is what is wrong with a line of a text.
type LineError struct {
	Line          int // from 1
	Message, Hint string
}

// ParseNetworks reads a list of networks: CIDRs and addresses, separated by
// commas, white space and line ends; a '#' and what follows it on its line is a
// comment.
func ParseNetworks(text string) ([]netip.Prefix, []LineError) {
	var out []netip.Prefix
	var wrong []LineError
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		for _, word := range fields(line) {
			prefix, err := network(word)
			if err != nil {
				message, hint := described(word, err)
				wrong = append(wrong, LineError{number, message, hint})
				continue
			}
			out = append(out, prefix)
		}
	}
	return out, wrong
}

// satisfyOption says how many of the ways in a client must have.
const satisfyOption = "satisfy"

// waysIn are the options of which satisfy says whether one is enough.
var waysIn = []string{"allow-list", "auth-basic", "auth-url"}

func satisfyOptions() []Option {
	return []Option{
		define(Option{
			Name: satisfyOption, Group: Protecting, On: onAll, Closes: true, Value: "`all` or `any`", Example: "any", Default: "`all`",
			Summary: "With `any`, one of `allow-list`, `auth-basic` and `auth-url` is enough: clients of `allow-list` are not asked who they are, others are asked for a password, and of those without one the service of `auth-url` is asked. All other protection holds for everybody. It is about the options of the object that it is on: an Ingress says nothing of those of its Service, nor the Service of those of the Ingress, nor either of those of the class.",
		}, oneOf(map[string]bool{"all": false, "any": true}), func(s *Settings, v bool) { s.satisfyAny = v }),
	}
}

// satisfy makes one of several checks enough, if all of them are options of the object with satisfy.
func (r *resolution) satisfy() {
	s := &r.settings
	if !s.satisfyAny {
		return
	}
	giver := Giver(satisfyOption, r.objects...)
	ways := 0
	for _, name := range waysIn {
		if !r.has(name) {
			continue
		}
		of := Giver(name, r.objects...)
		if ways++; of != giver || r.objects[of].Inherits(name) != r.objects[giver].Inherits(satisfyOption) {
			r.refuse(satisfyOption, "cannot have "+Prefix+name+" of another object be one of several ways in", "say both on the Ingress, both on the Service, or both for the class")
			return
		}
	}
	if ways < 2 {
		r.report(diag.Warning, satisfyOption, "has no effect with fewer than two of allow-list, auth-basic and auth-url", "")
		return
	}
	s.Protection.AllowSuffices = s.Protection.Allow.Any()
	if s.Basic != nil {
		s.Basic.Alternative, s.Basic.Others = true, s.External != nil
	}
	if s.External != nil {
		s.External.Alternative = true
		if s.Basic != nil {
			s.External.Realm = s.Basic.Realm
		}
	}
}

// errorStatuses reads statuses of answers that are errors.
func errorStatuses(text string) ([]int, error) {
	out, err := listOf(func(word string) (int, error) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 400 || n > 599 || strconv.Itoa(n) != word {
			return 0, fault("is not the status of an error", "use 400 to 599")
		}
		return n, nil
	})(text)
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > mostEdits {
		return nil, fault(fmt.Sprintf("lists %d statuses", len(out)), fmt.Sprintf("use %d at most", mostEdits))
	}
	return out, err
}

var realmForm = regexp.MustCompile(`^[ !#-\[\]-~]{1,200}$`)

// realm reads what can stand in quotes in a WWW-Authenticate header.
func realm(text string) (string, error) {
	if !realmForm.MatchString(text) {
		return "", fault("is not a realm", `use at most 200 characters of ASCII, without " and \`)
	}
	return text, nil
}

// authService reads the URL of a Service that is asked for authentication.
func authService(text string) (*policy.ExternalAuth, error) {
	const hint = "use http://SERVICE.NAMESPACE.svc:PORT/PATH"
	if err := visible(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.Contains(text, "#"):
		return nil, fault("is not the URL of a Service", hint)
	case u.Scheme == "https":
		return nil, fault("asks for TLS, which is not supported towards an authentication service", hint)
	case u.Scheme != "http":
		return nil, fault("is not the URL of a Service", hint)
	}
	ref, err := serviceRef(u.Host)
	if err != nil {
		return nil, err
	}
	_, path, _ := strings.Cut(text, "://"+u.Host)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return &policy.ExternalAuth{Service: ref, Host: u.Host, Path: path}, nil
}

// serviceRef reads the DNS name of a Service, perhaps with a port.
func serviceRef(host string) (policy.ServiceRef, error) {
	name, port, hasPort := strings.Cut(host, ":")
	ref := policy.ServiceRef{Port: 80}
	if hasPort {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
			return ref, faultOf(host, "has no valid port", "use 1 to 65535")
		}
		ref.Port = n
	}
	short := strings.TrimSuffix(strings.TrimSuffix(name, ".cluster.local"), ".svc")
	ref.Name, ref.Namespace, _ = strings.Cut(short, ".")
	if (strings.HasSuffix(name, ".cluster.local") && !strings.HasSuffix(name, ".svc.cluster.local")) || (short != name && ref.Namespace == "") ||
		len(validation.IsDNS1123Label(ref.Name)) > 0 || (ref.Namespace != "" && len(validation.IsDNS1123Label(ref.Namespace)) > 0) {
		return ref, faultOf(name, "is not a Service of the cluster", "use SERVICE, or SERVICE.NAMESPACE.svc: other hosts would have to be resolved by DNS while requests wait")
	}
	return ref, nil
}

// signIn reads a location that a parameter can be added to.
func signIn(text string) (string, error) {
	r, err := redirect(text)
	switch {
	case err != nil:
		return "", err
	case r.Location != text:
		return "", fault("has more than one word", "write a path or a URL")
	case strings.Contains(text, "#"):
		return "", fault("holds a fragment", "leave out what follows #")
	}
	return text, nil
}

// parameterName reads the name of a parameter of a query.
func parameterName(text string) (string, error) {
	if !keyForm.MatchString(text) {
		return "", fault("is not the name of a parameter", "use letters, digits, - and _")
	}
	return text, nil
}

// requestHost stands for the host of a client's request.
const requestHost = "request-host"

// authHost reads what a service gets as Host.
func authHost(text string) (string, error) {
	if text == requestHost {
		return text, nil
	}
	return hostPort(text)
}

// carriedHeader reads the name of a header that can be handed on.
func carriedHeader(text string) (string, error) {
	name, err := token(text)
	if err == nil && slices.Contains(notEdited, strings.ToLower(name)) {
		return "", fault("is not a header that can be handed on", "leave it out")
	}
	return name, err
}

// The options that ask for the country of a client.
const (
	AllowCountries = "allow-countries"
	DenyCountries  = "deny-countries"
)

const valueCountries = "codes such as `DE` and `US-CA`, separated by commas"

// countryForm is a country as in ISO 3166-1, or a region of one as in ISO 3166-2. Codes are the
// administrator's, so that any with this form will do.
var countryForm = regexp.MustCompile(`^[A-Z][A-Z0-9](-[A-Z0-9]{1,3})?$`)

// country reads the code of a country, in lower case or upper.
func country(text string) (string, error) {
	code := strings.ToUpper(text)
	if !countryForm.MatchString(code) || len(code) != len(text) {
		return "", fault("is not the code of a country", "use two letters such as DE, or with a region such as US-CA")
	}
	return code, nil
}

// mostCountries is more than there are countries.
const mostCountries = 500

func countries(text string) (policy.Countries, error) {
	out, err := listOf(country)(text)
	if len(out) > mostCountries {
		return nil, fault(fmt.Sprintf("lists %d codes", len(out)), fmt.Sprintf("use %d at most", mostCountries))
	}
	return out, err
}

// CountryLine is a line of a list of countries.
type CountryLine struct {
	Network netip.Prefix
	Code    string
	Line    int // from 1
}

// ParseCountries reads a list of countries: lines of a network and a code, with white space between
// them; a '#' and what follows it on its line is a comment.
func ParseCountries(text string) ([]CountryLine, []LineError) {
	out := make([]CountryLine, 0, strings.Count(text, "\n")+1)
	var wrong []LineError
	codes := map[string]string{} // as they are written, so that there is one text of each
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		first, rest := word(line)
		if first == "" {
			continue
		}
		second, rest := word(rest)
		prefix, code, failed := countryLine(first, second, rest, codes)
		if failed != nil {
			failed.Line = number
			wrong = append(wrong, *failed)
			continue
		}
		out = append(out, CountryLine{prefix, code, number})
	}
	return out, wrong
}

// countryLine reads the two words of a line, after which nothing may follow.
func countryLine(first, second, rest string, codes map[string]string) (netip.Prefix, string, *LineError) {
	fail := func(text string, err error) (netip.Prefix, string, *LineError) {
		message, hint := described(text, err)
		return netip.Prefix{}, "", &LineError{Message: message, Hint: hint}
	}
	prefix, err := network(first)
	if err == nil && prefix.Addr().Is4In6() {
		err = fault("is an IPv4 network in the form of IPv6", "write it as "+prefix.Addr().Unmap().String()+", with its own length")
	}
	if err != nil {
		return fail(first, err)
	}
	if second == "" || strings.TrimSpace(rest) != "" {
		return fail(first, fault("does not stand with one code on its line", "write NETWORK CODE, such as 192.0.2.0/24 DE"))
	}
	code, known := codes[second]
	if !known {
		if code, err = country(second); err != nil {
			return fail(second, err)
		}
		codes[strings.Clone(second)] = code
	}
	return prefix, code, nil
}

// word returns the first word of a line, and what follows it.
func word(line string) (first, rest string) {
	line = strings.TrimLeft(line, " \t\r\n")
	if end := strings.IndexAny(line, " \t\r\n"); end >= 0 {
		return line[:end], line[end:]
	}
	return line, ""
}

// The options of programs that are asked about requests.
const (
	WAF    = "waf"
	Agents = "agents"
)

// mostAgents is how many agents a request may be told to.
const mostAgents = 8

func agentOptions() []Option {
	return []Option{
		define(Option{
			Name: WAF, Group: Protecting, On: onAll, Closes: true, Value: "`NAME` of a ConfigMap of the same namespace, or `NAMESPACE/NAME`", Example: "strict",
			Summary: "Has requests looked through for attacks (SQL injection, cross-site scripting and others), as the [policy](waf.md) under the key `policy` of the ConfigMap says. One of another namespace can be named if the configuration shares it (`shared.wafPolicies`). An attack gets 403 if the policy blocks. **What an agent has not seen is not served: a body that does not fit into HAProxy's buffer gets 413, unless the policy says `uninspected: allow`.** While the agent gives no answer, requests get 503, unless the policy says `failure: open`. The routes are closed while the policy cannot be used.",
		}, wafPolicy, func(s *Settings, v policy.WAF) { s.WAF = &v }),
		define(Option{
			Name: Agents, Group: Protecting, On: onAll, Closes: true, Value: "names, separated by commas", Example: "bots",
			Summary: "Asks [agents](waf.md#any-agent) about each request, in this order, before an endpoint gets it. The administrator lists them in `agents` of the configuration, and says there which namespaces may name each, what it is told, and what happens while it gives no answer.",
		}, agentNames, func(s *Settings, v []policy.Agent) { s.Agents = v }),
	}
}

// wafPolicy reads the name of a ConfigMap, perhaps with a namespace.
func wafPolicy(text string) (policy.WAF, error) {
	var w policy.WAF
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = "", text
	}
	if both && len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return w, fault("is not the name of a ConfigMap", "use NAME, or NAMESPACE/NAME")
	}
	w.Namespace, w.Name = namespace, name
	return w, nil
}

var agentForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,29}$`)

// agentNames reads names of agents, each once.
func agentNames(text string) ([]policy.Agent, error) {
	out, err := listOf(func(word string) (policy.Agent, error) {
		if !agentForm.MatchString(word) {
			return policy.Agent{}, fault("is not the name of an agent", "use names that the configuration has in agents")
		}
		return policy.Agent{Name: word}, nil
	})(text)
	for i, a := range out {
		if slices.Contains(out[:i], a) {
			return nil, faultOf(a.Name, "is listed twice", "list each agent once")
		}
	}
	if len(out) > mostAgents {
		return nil, fault(fmt.Sprintf("lists %d agents", len(out)), fmt.Sprintf("use %d at most", mostAgents))
	}
	return out, err
}

// Asks reports whether somebody is asked whether a request may pass: who sent it, or an agent.
func (s Settings) Asks() bool {
	return s.Basic != nil || s.External != nil || s.WAF != nil || len(s.Agents) > 0
}
