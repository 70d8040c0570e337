package options

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// Settings are what the options of an Ingress and of a Service ask for together.
type Settings struct {
	// Aliases are more names of the Ingress's host.
	Aliases []string
	// ShareHost are the namespaces that may have paths of the Ingress's hosts.
	ShareHost []string
	// ExactPaths makes ImplementationSpecific paths exact ones.
	ExactPaths bool
	// Expressions makes them regular expressions.
	Expressions bool
	// Paths are the options for how paths are compared.
	Paths Paths
	// Passthrough passes TLS connections on as they are.
	Passthrough bool
	// Clients says which certificates TLS clients must show; Protection has what that means for requests.
	Clients Clients
	Canary  Canary
	// Fallback is the Service for routes whose own has no usable endpoint; its zero value is
	// none, and without a Port it is the first one.
	Fallback policy.ServiceRef
	// RedirectWWW redirects the names of the hosts with www. before them, or without, to them.
	RedirectWWW bool
	Protection  policy.Protection
	Upstream    policy.Upstream
	// Snippet are lines of haproxy.cfg, for those who may write any.
	Snippet []policy.Line
	// ServerSecrets are those that TLS to the servers needs, if there is any.
	ServerSecrets ServerSecrets
	// Connections are ports of the Service's own.
	Connections Connections
	// Basic and External say who is let in; nil is anybody.
	Basic    *policy.BasicAuth
	External *policy.ExternalAuth
	// Agents and WAF are asked about the requests of those who are let in.
	Agents []policy.Agent
	WAF    *policy.WAF

	https        *policy.HTTPSRedirect
	cors         policy.CORS
	appRoot      string
	redirect     *policy.Redirect
	edits        [2][]policy.HeaderEdit // of requests, of answers
	forwardedFor policy.ForwardedMode
	hsts         string
	host         string
	path         *policy.RewritePath
	servers      serverTLS
	fastCGI      policy.FastCGI
	rate         policy.RateLimit
	sticky       bool
	affinity     policy.Affinity
	basic        policy.BasicAuth
	external     policy.ExternalAuth
	authHost     string
	satisfyAny   bool
	intercept    []int // statuses
	cookies      policy.RewriteCookies
}

// Resolve joins the options of objects. The later object wins. Problems are those that no object has
// by itself, by the index of the object that each is on. Closed says that something protecting cannot
// be built.
func Resolve(objects ...Values) (s Settings, problems map[int][]Problem, closed bool) {
	r := resolution{objects: objects}
	for _, v := range objects {
		r.closed = r.closed || v.Closed
		for _, g := range v.given {
			g.apply(&r.settings)
		}
	}
	r.needs()
	r.groups()
	r.tls()
	r.fcgi()
	r.cors()
	r.clients()
	if r.has("rate-limit") || r.has(rateLimitConnections) {
		r.settings.Protection.Rate = rateLimit(r.settings.rate)
	}
	if r.settings.sticky {
		r.settings.Upstream.Affinity = &r.settings.affinity
	}
	r.authentication()
	r.satisfy()
	return r.settings, r.problems, r.closed
}

// resolution is one call of Resolve.
type resolution struct {
	objects  []Values
	settings Settings
	problems map[int][]Problem
	closed   bool
}

func (r *resolution) has(name string) bool {
	return slices.ContainsFunc(r.objects, func(v Values) bool { return v.Has(name) })
}

// report adds a problem of the last object that has the option. What has no
// effect here may have some on other Ingresses of the class.
func (r *resolution) report(severity diag.Severity, name, message, hint string) {
	i := Giver(name, r.objects...)
	if i < 0 {
		return
	}
	inherited := r.objects[i].Inherits(name)
	if inherited && severity == diag.Warning {
		return
	}
	if r.problems == nil {
		r.problems = map[int][]Problem{}
	}
	r.problems[i] = append(r.problems[i], Problem{severity, Prefix + name, titleOf(name, inherited) + " " + message, hint, inherited})
}

// CountsForwarded reports whether an X-Forwarded-For that comes is to count.
func (s Settings) CountsForwarded() bool {
	return s.forwardedFor == policy.ForwardedAppend || s.forwardedFor == policy.ForwardedKeep
}

// needs reports options that mean nothing alone.
func (r *resolution) needs() {
	for _, v := range r.objects {
		for _, g := range v.given {
			needs := g.option.Needs
			if needs == "cors-allow-origin" && r.has("cors-allow-origin-pattern") {
				continue
			}
			if needs == "rate-limit" && g.option.Name != "rate-limit-period" && r.has(rateLimitConnections) {
				continue // is about that, too
			}
			if needs != "" && !r.has(needs) {
				r.report(diag.Warning, g.option.Name, "has no effect without "+Prefix+needs, "")
			}
		}
	}
}

// groups leaves out a path that refers to groups of an expression if no path has any.
func (r *resolution) groups() {
	if p := r.settings.path; p != nil && p.Pattern == "" && p.HasGroups() && !r.settings.Expressions {
		r.report(diag.Error, "rewrite-path", "refers to groups, which only paths that are expressions have; it is ignored", "set "+Prefix+PathType+": Regex, or write an expression before it")
		r.settings.path = nil
	}
}

// cors leaves out what would let any site act with the user's credentials.
func (r *resolution) cors() {
	c := &r.settings.cors
	if c.AnyOrigin && c.Credentials {
		r.report(diag.Error, "cors-allow-credentials", "is refused with any origin allowed; it is ignored", "list the origins in "+Prefix+"cors-allow-origin")
		c.Credentials = false
	}
}

// authentication fills what is empty.
func (r *resolution) authentication() {
	s := &r.settings
	if r.has("auth-basic") {
		s.Basic = &policy.BasicAuth{Secret: s.basic.Secret, Realm: cmp.Or(s.basic.Realm, "Restricted")}
	}
	if r.has("auth-url") {
		external := s.external
		external.Method = cmp.Or(external.Method, "GET")
		external.Timeout = cmp.Or(external.Timeout, "5s")
		external.Return = cmp.Or(external.Return, policy.ReturnURL)
		external.Parameter = cmp.Or(external.Parameter, "rd")
		if external.HostOfRequest = s.authHost == requestHost; !external.HostOfRequest {
			external.Host = cmp.Or(s.authHost, external.Host)
		}
		s.External = &external
	}
}

// Filters returns the filters in the order in which they apply. Filters that answer come before those that change the
// request, and a redirect of everything comes last. Requests that are redirected to HTTPS are not asked for a password
// before, which would be unencrypted; neither are preflight requests, which browsers send without one. Agents inspect
// requests as clients sent them, after all filters that may refuse these, since asking an agent takes the most time.
func (s Settings) Filters() []policy.Filter {
	var out []policy.Filter
	if s.https != nil {
		out = append(out, *s.https)
	}
	if c := s.cors; c.AnyOrigin || len(c.Origins)+len(c.OriginPatterns)+len(c.Expressions) > 0 {
		out = append(out, withDefaults(c))
	}
	if s.Basic != nil {
		out = append(out, *s.Basic)
	}
	if s.External != nil {
		out = append(out, *s.External)
	}
	for _, a := range s.Agents {
		out = append(out, a)
	}
	if s.WAF != nil {
		out = append(out, *s.WAF)
	}
	if s.appRoot != "" {
		out = append(out, policy.Redirect{Location: s.appRoot, Root: true, Code: 302})
	}
	for i, of := range []policy.Message{policy.Requests, policy.Answers} {
		if len(s.edits[i]) > 0 {
			out = append(out, policy.Headers{Of: of, Edits: s.edits[i]})
		}
	}
	if s.cookies != (policy.RewriteCookies{}) {
		out = append(out, s.cookies)
	}
	if len(s.intercept) > 0 {
		out = append(out, policy.InterceptErrors{Statuses: s.intercept})
	}
	if s.hsts != "" {
		out = append(out, policy.HSTS{Value: s.hsts})
	}
	if s.redirect != nil {
		return append(out, *s.redirect)
	}
	return append(out, s.rewrites()...)
}

// Ways returns the filters that decide which requests are let in, with those that come before them; and the rest of the filters.
// Without any of the former, all are the rest.
func (s Settings) Ways() (ways, rest []policy.Filter) {
	all := s.Filters()
	n := 0
	for i, f := range all {
		switch f.(type) {
		case policy.BasicAuth, policy.ExternalAuth, policy.Agent, policy.WAF:
			n = i + 1
		}
	}
	return all[:n], all[n:]
}

func (s Settings) rewrites() []policy.Filter {
	var out []policy.Filter
	if s.forwardedFor != "" {
		out = append(out, policy.ForwardedFor{Mode: s.forwardedFor})
	}
	if s.host != "" {
		out = append(out, policy.RewriteHost{Host: s.host})
	}
	if s.path != nil {
		out = append(out, *s.path)
	}
	return out
}

// withDefaults fills what is empty.
func withDefaults(c policy.CORS) policy.CORS {
	if len(c.Methods) == 0 {
		c.Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	}
	if len(c.Headers) == 0 {
		c.Headers = []string{"Accept", "Authorization", "Content-Type", "X-Requested-With"}
	}
	if c.MaxAge == 0 {
		c.MaxAge = 600
	}
	return c
}

// rateLimit fills what is empty.
func rateLimit(r policy.RateLimit) *policy.RateLimit {
	if r.Period == "" {
		r.Period = "1s"
	}
	if r.Status == 0 {
		r.Status = 429
	}
	return &r
}

// Different returns the names of the options that an object has and that others do not have with the same value. If several
// others have an option, the first one counts. It leaves out unknown names, those of [Canary], and options that do not
// affect the requests of an Ingress.
func Different(annotations map[string]string, others ...map[string]string) []string {
	var out []string
	for _, name := range ours(annotations) {
		o, known := registry[name]
		if !known || o.Name == canaryOption || o.Needs == canaryOption || (o.Matches && o.On == OnService) {
			continue
		}
		if value, holds := valueIn(others, name); !holds || value != annotations[Prefix+name] {
			out = append(out, name)
		}
	}
	return out
}

func valueIn(objects []map[string]string, name string) (string, bool) {
	for _, annotations := range objects {
		if value, ok := annotations[Prefix+name]; ok {
			return value, true
		}
	}
	return "", false
}
