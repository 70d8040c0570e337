package gateway

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// work is what a rule does with its requests, besides choosing servers. The rewrite is made for each prefix that the
// rule matches.
type work struct {
	filters  []policy.Filter
	rewrite  *gatewayv1.HTTPPathModifier
	redirect *policy.RedirectURL
	timeout  policy.Duration
	retry    *retry
	sessions *policy.Affinity
	mirrors  []gatewayv1.HTTPRequestMirrorFilter
	// closed says why requests get the answer 500.
	closed *problem
}

// workOf returns what filters ask for.
func workOf(filters []gatewayv1.HTTPRouteFilter) (work, *problem) {
	var w work
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i, f := range filters {
		if seen[f.Type] && f.Type != gatewayv1.HTTPRouteFilterExtensionRef && f.Type != gatewayv1.HTTPRouteFilterRequestMirror {
			return w, unsupported("the filter %s is there twice", f.Type).in("filters", i)
		}
		seen[f.Type] = true
		if p := w.add(f); p != nil {
			return w, p.in("filters", i)
		}
	}
	if seen[gatewayv1.HTTPRouteFilterRequestRedirect] && seen[gatewayv1.HTTPRouteFilterURLRewrite] {
		return w, &problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "a request is either redirected or rewritten", path: []any{"filters"}}
	}
	if seen[gatewayv1.HTTPRouteFilterRequestRedirect] && len(w.mirrors) > 0 {
		return w, (&problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "a request that is redirected is not mirrored"}).in("filters")
	}
	return w, nil
}

func (w *work) add(f gatewayv1.HTTPRouteFilter) *problem {
	switch {
	case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
		return w.edit(policy.Requests, *f.RequestHeaderModifier).below("requestHeaderModifier")
	case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
		return w.edit(policy.Answers, *f.ResponseHeaderModifier).below("responseHeaderModifier")
	case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
		return w.redirected(*f.RequestRedirect).below("requestRedirect")
	case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
		if h := f.URLRewrite.Hostname; h != nil {
			if p := checkHost(string(*h)); p != nil {
				return p.in("urlRewrite", "hostname")
			}
			w.filters = append(w.filters, policy.RewriteHost{Host: string(*h)})
		}
		return w.path(f.URLRewrite.Path).below("urlRewrite", "path")
	case f.Type == gatewayv1.HTTPRouteFilterCORS && f.CORS != nil:
		return w.cors(*f.CORS).below("cors")
	case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
		w.mirrors = append(w.mirrors, *f.RequestMirror)
		return nil
	case f.Type == gatewayv1.HTTPRouteFilterExtensionRef:
		w.closed = &problem{reason: string(gatewayv1.RouteReasonInvalidKind), message: "a filter of a kind that is not known; requests are answered 500", path: []any{"extensionRef"}}
		return nil
	}
	return unsupported("the filter %s is not supported", f.Type).in("type")
}

// below is [problem.in], but also takes nil.
func (p *problem) below(path ...any) *problem {
	if p == nil {
		return nil
	}
	return p.in(path...)
}

// edit adds changes of headers. Headers are removed first, then set, then added.
func (w *work) edit(of policy.Message, in gatewayv1.HTTPHeaderFilter) *problem {
	var edits []policy.HeaderEdit
	names := map[string]bool{}
	add := func(do policy.EditVerb, name, value string) *problem {
		if !isToken.MatchString(name) {
			return unsupported("header name %q holds characters that are not supported", name)
		}
		if options.OfConnection(name) {
			return unsupported("header %q is not one that can be changed", name)
		}
		if names[strings.ToLower(name)] {
			return unsupported("header %q is changed twice", name)
		}
		names[strings.ToLower(name)] = true
		if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return unsupported("the value of header %q holds what cannot be sent", name)
		}
		edits = append(edits, policy.HeaderEdit{Do: do, Name: name, Value: value})
		return nil
	}
	for i, name := range in.Remove {
		if p := add(policy.Remove, name, ""); p != nil {
			return p.in("remove", i)
		}
	}
	for i, h := range in.Set {
		if p := add(policy.Set, string(h.Name), h.Value); p != nil {
			return p.in("set", i)
		}
	}
	for i, h := range in.Add {
		if p := add(policy.Add, string(h.Name), h.Value); p != nil {
			return p.in("add", i)
		}
	}
	if len(edits) > 0 {
		w.filters = append(w.filters, policy.Headers{Of: of, Edits: edits})
	}
	return nil
}

// originForm matches an origin. A star at the beginning of the host, and nowhere else, stands for any number of labels:
// PCRE would try several stars in every way.
var originForm = regexp.MustCompile(`^https?://(\*|(\*\.)?[A-Za-z0-9.-]+)(:[0-9]{1,5})?$`)

// cors lets browsers read answers for pages of other origins. With credentials, browsers give a star no meaning, so it
// is replaced by the value that the browser sent.
func (w *work) cors(in gatewayv1.HTTPCORSFilter) *problem {
	out := policy.CORS{AnswerAll: true, Credentials: in.AllowCredentials != nil && *in.AllowCredentials, MaxAge: int(in.MaxAge)}
	if out.MaxAge == 0 {
		out.MaxAge = 5 // the default of the schema
	}
	for i, origin := range in.AllowOrigins {
		switch {
		case origin == "*" && out.Credentials:
			out.OriginPatterns = append(out.OriginPatterns, "^[^ ,]+$")
		case origin == "*":
			out.AnyOrigin = true
		case !originForm.MatchString(string(origin)):
			return unsupported("%q is no origin", origin).in("allowOrigins", i)
		case strings.Contains(string(origin), "*"):
			out.OriginPatterns = append(out.OriginPatterns, "^"+strings.ReplaceAll(regexp.QuoteMeta(string(origin)), `\*`, "[A-Za-z0-9.-]+")+"$")
		default:
			out.Origins = append(out.Origins, string(origin))
		}
	}
	for i, method := range in.AllowMethods {
		switch {
		case method == "*":
			out.EchoMethods = true
		case !isToken.MatchString(string(method)):
			return unsupported("method %q is not supported", method).in("allowMethods", i)
		default:
			out.Methods = append(out.Methods, string(method))
		}
	}
	for _, list := range []struct {
		field string
		names []gatewayv1.HTTPHeaderName
		into  *[]string
		any   *bool
	}{{"allowHeaders", in.AllowHeaders, &out.Headers, &out.EchoHeaders}, {"exposeHeaders", in.ExposeHeaders, &out.Expose, nil}} {
		for i, name := range list.names {
			switch {
			case name == "*" && list.any != nil:
				*list.any = true
			case name == "*" && !out.Credentials:
				*list.into = append(*list.into, "*")
			case !isToken.MatchString(string(name)):
				return unsupported("header name %q is not supported", name).in(list.field, i)
			default:
				*list.into = append(*list.into, string(name))
			}
		}
	}
	w.filters = append(w.filters, out)
	return nil
}

func checkHost(host string) *problem {
	if message, _ := hostname.Check(host); message != "" || strings.Contains(host, "*") {
		return unsupported("hostname %q is not one host", host)
	}
	return nil
}

func (w *work) redirected(in gatewayv1.HTTPRequestRedirectFilter) *problem {
	out := &policy.RedirectURL{Code: 302}
	if in.Scheme != nil {
		if *in.Scheme != "http" && *in.Scheme != "https" {
			return unsupported("scheme %q is not supported", *in.Scheme).in("scheme")
		}
		out.Scheme = *in.Scheme
	}
	if in.Hostname != nil {
		if p := checkHost(string(*in.Hostname)); p != nil {
			return p.in("hostname")
		}
		out.Host = string(*in.Hostname)
	}
	if in.Port != nil {
		if *in.Port < 1 || *in.Port > 65535 {
			return unsupported("there is no port %d", *in.Port).in("port")
		}
		out.Port = int(*in.Port)
	}
	if in.StatusCode != nil {
		switch *in.StatusCode {
		case 301, 302, 303, 307, 308:
			out.Code = *in.StatusCode
		default:
			return unsupported("status %d is not supported", *in.StatusCode).in("statusCode")
		}
	}
	w.redirect = out
	return w.path(in.Path).below("path")
}

// path notes how the path changes.
func (w *work) path(in *gatewayv1.HTTPPathModifier) *problem {
	if in == nil {
		return nil
	}
	var to *string
	switch in.Type {
	case gatewayv1.FullPathHTTPPathModifier:
		to = in.ReplaceFullPath
	case gatewayv1.PrefixMatchHTTPPathModifier:
		to = in.ReplacePrefixMatch
	}
	if to == nil || (in.ReplaceFullPath != nil) == (in.ReplacePrefixMatch != nil) {
		return unsupported("the path is not replaced by what the type %q says", in.Type)
	}
	if *to != "" {
		if p := checkPath(*to); p != nil {
			return p
		}
	}
	if strings.ContainsAny(*to, `\'`) {
		return unsupported("path %q holds characters that are not supported", *to)
	}
	w.rewrite = in
	return nil
}

// filtersFor returns the filters for the requests of a match.
func (w work) filtersFor(m match) ([]policy.Filter, *problem) {
	out := append([]policy.Filter{}, w.filters...)
	if w.rewrite != nil {
		if w.rewrite.Type == gatewayv1.FullPathHTTPPathModifier {
			to := *w.rewrite.ReplaceFullPath
			if to == "" {
				to = "/"
			}
			out = append(out, policy.RewritePath{Pattern: "^.*", Replacement: to})
		} else {
			if m.Type != routing.Prefix || m.isPattern() {
				return nil, unsupported("only a prefix can be replaced, and a match has none")
			}
			out = append(out, replaced(m.Path, strings.TrimRight(*w.rewrite.ReplacePrefixMatch, "/")))
		}
	}
	if w.redirect != nil {
		out = append(out, *w.redirect)
	}
	return out, nil
}

// replaced returns the filter that replaces a prefix of whole path elements.
func replaced(prefix, to string) policy.RewritePath {
	if to == "" {
		return policy.RewritePath{Pattern: "^" + regexp.QuoteMeta(prefix) + "/?(.*)$", Replacement: `/\1`}
	}
	return policy.RewritePath{Pattern: "^" + regexp.QuoteMeta(prefix) + "(/.*)?$", Replacement: to + `\1`}
}

// retry says how often a request is sent again, and after which failures.
type retry struct {
	attempts int
	on       string // in the form of policy.Upstream
}

// retriable are the status codes after which every supported HAProxy can retry.
var retriable = []gatewayv1.HTTPRouteRetryStatusCode{401, 403, 404, 408, 425, 500, 501, 502, 503, 504}

// The number of attempts if a rule does not set it, and the largest number that a rule may set.
const usualAttempts, mostAttempts = 3, 100

// retryOf returns the retries of a rule. HAProxy does not wait before a retry, and has no limit for all retries
// together. So settings that need either are not accepted.
func retryOf(rule gatewayv1.HTTPRouteRule) (*retry, *problem) {
	in := rule.Retry
	if in == nil {
		return nil, nil
	}
	out := &retry{attempts: usualAttempts}
	if in.Attempts != nil {
		out.attempts = *in.Attempts
	}
	if out.attempts < 1 || out.attempts > mostAttempts {
		return nil, unsupported("%d attempts are not between 1 and %d", out.attempts, mostAttempts).in("retry", "attempts")
	}
	if in.Backoff != nil {
		if d, err := time.ParseDuration(string(*in.Backoff)); err != nil || d != 0 {
			return nil, unsupported("a backoff is not supported: a request is sent again at once").in("retry", "backoff")
		}
	}
	on := []string{"conn-failure", "empty-response", "response-timeout"}
	for _, code := range slices.Compact(slices.Sorted(slices.Values(in.Codes))) {
		if !slices.Contains(retriable, code) {
			return nil, unsupported("the code %d is not supported: those that are, are %v", code, retriable).in("retry", "codes", slices.Index(in.Codes, code))
		}
		on = append(on, strconv.Itoa(int(code)))
	}
	out.on = strings.Join(on, " ")
	return out, retriesFit(rule.Timeouts, out.attempts)
}

// retriesFit returns a problem if a request and its retries may take longer than the rule allows for all of them.
func retriesFit(in *gatewayv1.HTTPRouteTimeouts, attempts int) *problem {
	if in == nil || in.Request == nil {
		return nil
	}
	request, err := time.ParseDuration(string(*in.Request))
	if err != nil || request == 0 {
		return nil // there is no limit; other values are refused with the timeouts
	}
	if in.BackendRequest != nil {
		each, err := time.ParseDuration(string(*in.BackendRequest))
		if err == nil && each > 0 && each <= request/time.Duration(attempts+1) {
			return nil
		}
	}
	return unsupported("a request with its retries may take longer than timeouts.request: timeouts.backendRequest has to fit into it %d times", attempts+1).in("retry", "attempts")
}

// timeoutOf returns how long a server may take. That is the smaller timeout of the rule, or "" if it has none. "No
// limit" becomes the longest time that HAProxy can wait.
func timeoutOf(in *gatewayv1.HTTPRouteTimeouts) (policy.Duration, *problem) {
	if in == nil {
		return "", nil
	}
	const unlimited = 24 * 24 * time.Hour
	least := time.Duration(-1)
	for _, f := range []struct {
		name  string
		value *gatewayv1.Duration
	}{{"request", in.Request}, {"backendRequest", in.BackendRequest}} {
		if f.value == nil {
			continue
		}
		d, err := time.ParseDuration(string(*f.value))
		if err != nil || d < 0 || d > unlimited || d%time.Millisecond != 0 {
			return "", unsupported("%q is no duration that can be waited for", *f.value).in("timeouts", f.name)
		}
		if d == 0 {
			d = unlimited
		}
		if least < 0 || d < least {
			least = d
		}
	}
	if least < 0 {
		return "", nil
	}
	return policy.Duration(fmt.Sprintf("%dms", least.Milliseconds())), nil
}

// mirrored returns the filters that copy requests of a rule, or of one of its backendRefs. A mirror that leads nowhere
// is left out and reported, and the requests are served.
func mirrored(r *reader, todo work, w *wants, origin routing.Origin) ([]policy.Filter, *problem) {
	var out []policy.Filter
	for _, m := range todo.mirrors {
		share, p := shareOf(m)
		if p == nil && r.isGRPC() {
			p = unsupported("calls are not mirrored")
		}
		if p == nil && r.form == routing.AsSent {
			p = unsupported("mirrors need Lua in HAProxy, which paths.normalize says is there")
		}
		if p != nil {
			return nil, p
		}
		found := r.refer(r.Route, gatewayv1.BackendRef{BackendObjectReference: m.BackendRef})
		r.use(found)
		if found.problem == nil && found.service.Value.Annotations[gatewayServiceMark] != "" {
			found.problem = &problem{reason: string(gatewayv1.RouteReasonInvalidKind), message: "the Service " + found.target.Service.Service + " is that of a Gateway, and a request would be copied for ever"}
		}
		if found.problem != nil {
			r.resolve(found.problem)
			continue
		}
		if share.Numerator > 0 {
			// Filters and options do not apply to copies of requests.
			made, suffix := routing.Backend{Targets: []routing.Target{found.target}}, "0"
			var own []any // what tells it from other backends of the Service
			if r.serve(&made, found, w, false) {
				own = append(own, r.shown)
			}
			if u := made.Upstream; u != nil && u.Affinity != nil {
				// Copied requests belong to no session. The backend of other requests keeps its sessions.
				u.Affinity, own = nil, append(own, "copies")
			}
			if len(own) > 0 {
				suffix = digest(append([]any{[]policy.Filter(nil), policy.Duration(""), false}, own...)...)
			}
			made.Name = found.name + ":" + suffix
			share.Backend = w.add(made, origin)
			out = append(out, share)
		}
	}
	return out, nil
}

// shareOf returns which share of the requests is copied.
func shareOf(m gatewayv1.HTTPRequestMirrorFilter) (policy.Mirror, *problem) {
	out := policy.Mirror{Numerator: 100, Denominator: 100}
	switch {
	case m.Percent != nil && m.Fraction != nil:
		return out, unsupported("a mirror has either a percentage or a fraction")
	case m.Percent != nil:
		out.Numerator = int(*m.Percent)
	case m.Fraction != nil:
		out.Numerator = int(m.Fraction.Numerator)
		if m.Fraction.Denominator != nil {
			out.Denominator = int(*m.Fraction.Denominator)
		}
	}
	if out.Denominator < 1 || out.Numerator < 0 || out.Numerator > out.Denominator {
		return out, unsupported("%d in %d requests is no share of them", out.Numerator, out.Denominator)
	}
	return out, nil
}

// placeMirrors gives the mirrors of all backends the socket on which copies arrive. It is named after the first port of
// a Gateway.
func placeMirrors(m *routing.Model) {
	if len(m.Binds) == 0 {
		return
	}
	first := m.Binds[0]
	for i, b := range m.Backends {
		if !slices.ContainsFunc(b.Filters, func(f policy.Filter) bool { _, is := f.(policy.Mirror); return is }) {
			continue
		}
		m.Backends[i].Filters = slices.Clone(b.Filters) // claims share the filters
		for j, f := range b.Filters {
			if mirror, ok := f.(policy.Mirror); ok {
				if mirror.Port = first.Socket; len(first.Addresses) > 0 {
					mirror.Address = first.Addresses[0]
				}
				m.Backends[i].Filters[j] = mirror
			}
		}
	}
}
