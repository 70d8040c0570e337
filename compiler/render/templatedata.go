package render

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/decision"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// Input is everything that rendering reads besides the templates.
type Input struct {
	Model  routing.Model
	Config config.Config
	// Objects returns the objects that templates may read, in any order; nil stands for none. It is called once
	// at most, when a template first asks: those that we ship do not.
	Objects func() []Object
	// Memo is what was rendered before; nil renders everything.
	Memo *Memo
}

// TemplateData is the dot of a template.
type TemplateData struct {
	Config       config.Config
	Hosts        []routing.Host
	Held         []routing.Held
	Backends     []routing.Backend
	Certificates []routing.Certificate
	ServerNames  []routing.ServerName
	// SeveralAuthorities says that clients of different hosts or ports are asked for
	// certificates of different authorities, or that those of a Gateway's port are asked at all.
	SeveralAuthorities bool
	ErrorPages         []routing.ErrorPage
	// KnowsCountries says that there is a list of countries.
	KnowsCountries bool
	Userlists      []routing.Userlist
	Default        string // the name of a backend, or ""
	Listeners      []routing.Listener
	// DefaultCertificate is the file of a certificate, or "".
	DefaultCertificate string

	// Backend, Host, Certificate, Listener and Bind are what a template for each of them is
	// executed for; else they are zero.
	Backend     routing.Backend
	Host        routing.Host
	Certificate routing.Certificate
	Listener    routing.Listener
	Bind        routing.Bind

	// Binds are the ports that have hosts of their own.
	Binds []routing.Bind

	depths      []int
	splits      []routing.Split
	connections []routing.Backend
	objects     func() *objectIndex  // sorted when first asked for
	hidden      map[diag.Object]bool // at which the template failed
	origins     []routing.Origin
}

// Objects returns the objects of an apiVersion and kind, such as "networking.k8s.io/v1/Ingress", by namespace and name. A
// kind other than Ingress and Service that the configuration does not name is an error.
func (d TemplateData) Objects(gvk string) ([]Object, error) {
	kind, err := d.objects().kind(gvk)
	if err != nil {
		return nil, err
	}
	return d.shown(kind.objects), nil
}

// Indexed returns the objects of a kind that an index of the configuration finds for a value, by namespace and name.
func (d TemplateData) Indexed(gvk, index string, value any) ([]Object, error) {
	kind, err := d.objects().kind(gvk)
	if err != nil {
		return nil, err
	}
	found, err := kind.by(index, value)
	return d.shown(found), err
}

// shown returns the objects that are not hidden.
func (d TemplateData) shown(objects []Object) []Object {
	if len(d.hidden) == 0 {
		return objects
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o Object) bool { return d.hidden[o.Object] })
}

// Uses reports whether a backend has a filter of a kind.
func (d TemplateData) Uses(kind policy.Kind) bool {
	return slices.ContainsFunc(d.Backends, func(b routing.Backend) bool {
		return slices.ContainsFunc(b.Filters, func(f policy.Filter) bool { return f.Kind() == kind })
	})
}

// Mirror returns one of the filters that copy requests. All name the same socket.
func (d TemplateData) Mirror() policy.Mirror {
	for _, b := range d.Backends {
		for _, f := range b.Filters {
			if m, ok := f.(policy.Mirror); ok {
				return m
			}
		}
	}
	return policy.Mirror{}
}

// MirrorConnections is how many copies may be with their backends at once: a tenth of the connections that
// there may be, so that mirrors that hang leave the others to clients.
func (d TemplateData) MirrorConnections() int {
	if d.Config.MaxConn > 0 {
		return max(1, d.Config.MaxConn/10)
	}
	return 1000
}

// LimitsBodies reports whether a backend limits the size of requests' bodies.
func (d TemplateData) LimitsBodies() bool {
	return slices.ContainsFunc(d.Backends, func(b routing.Backend) bool { return b.Protection != nil && b.Protection.MaxBody > 0 })
}

// Served returns the backends, of requests and of whole connections, that have
// servers, or will once their Services have endpoints.
func (d TemplateData) Served() []routing.Backend {
	out := make([]routing.Backend, 0, len(d.Backends)+len(d.connections))
	for _, list := range [][]routing.Backend{d.Backends, d.connections} {
		for i := range list {
			if len(list[i].Targets) > 0 {
				out = append(out, list[i])
			}
		}
	}
	return out
}

// ClosesHosts reports whether there are hosts that the default backend is not to
// answer for.
func (d TemplateData) ClosesHosts() bool {
	return slices.ContainsFunc(d.Hosts, func(h routing.Host) bool { return h.Closed }) ||
		slices.ContainsFunc(d.Held, func(h routing.Held) bool { return h.Closed })
}

// Needed returns the backends of which one must have a usable server for an instance to be ready:
// see config.Ready.
func (d TemplateData) Needed() []routing.Backend {
	var out []routing.Backend
	for _, b := range d.Served() {
		if slices.ContainsFunc(b.Targets, func(t routing.Target) bool {
			return t.Name == nil && slices.Contains(d.Config.Status.Ready.Services, t.Service.Namespace+"/"+t.Service.Service)
		}) {
			out = append(out, b)
		}
	}
	return out
}

// Counted returns the backends whose servers the pusher knows: those with nothing but
// external names have none for a moment after each reload, until HAProxy finds them.
func (d TemplateData) Counted() []routing.Backend {
	return slices.DeleteFunc(d.Served(), func(b routing.Backend) bool {
		return !slices.ContainsFunc(b.Targets, func(t routing.Target) bool { return t.Name == nil })
	})
}

// LeastUsable is how many of the backends that count must have a usable
// server for an instance to be ready.
func (d TemplateData) LeastUsable() int {
	return (len(d.Counted())*d.Config.Status.Ready.MinBackendsPercent + 99) / 100
}

// Decisions returns how requests are sent on whose host and path do not decide alone.
func (d TemplateData) Decisions() decision.Tables { return decision.Decide(d.Hosts, d.splits) }

// Depths returns how many labels the wildcards of binds may have, most first. Those that most
// wildcards have are always there, so that another one needs no reload.
func (d TemplateData) Depths() []int { return d.depths }

func depthsOf(m routing.Model) []int {
	most := 5
	for _, h := range m.Hosts {
		if h.Bind != "" && hostname.IsWildcard(h.Name) {
			most = max(most, strings.Count(h.Name, "."))
		}
	}
	for _, l := range m.Listeners {
		for _, r := range l.Routes {
			if l.Bind != "" && hostname.IsWildcard(r.SNI) {
				most = max(most, strings.Count(r.SNI, "."))
			}
		}
	}
	var out []int
	for n := most; n > 0; n-- {
		out = append(out, n)
	}
	return out
}

// WidestSplit returns how many shares connections of Gateways may have to be shared out over. That most have
// are always there, so that another one needs no reload.
func (d TemplateData) WidestSplit() int {
	most := 4
	for _, s := range d.splits {
		most = max(most, len(s.Shares))
	}
	return most
}

// BindsOf returns the binds for a protocol.
func (d TemplateData) BindsOf(protocol string) []routing.Bind {
	return slices.DeleteFunc(slices.Clone(d.Binds), func(b routing.Bind) bool { return string(b.Protocol) != protocol })
}

// Expressions returns the paths that are expressions, in the order in which they are tried.
func (d TemplateData) Expressions() []routing.ExpressionEntry { return routing.Expressions(d.Hosts) }

// ExpressionPrefixes returns the prefixes of hosts that have expressions, by key.
func (d TemplateData) ExpressionPrefixes() []routing.ExpressionPrefix {
	return routing.ExpressionPrefixes(d.Hosts)
}

// PathForm returns the form in which paths are compared, unless a host has a form of its own.
func (d TemplateData) PathForm() routing.PathForm { return routing.FormOf(d.Config.Paths) }

// HostsOfOtherForms returns the hosts that say otherwise.
func (d TemplateData) HostsOfOtherForms() []routing.Host {
	form := d.PathForm()
	return hostsWith(d.Hosts, func(h routing.Host) bool { return h.Form != form })
}

// HostsOfListeners returns the hosts of parts of HTTPS binds.
func (d TemplateData) HostsOfListeners() []routing.Host {
	return hostsWith(d.Hosts, func(h routing.Host) bool { return h.Listener != "" })
}

// hostsWith returns some of many hosts, mostly none: a template that looked at each took a hundred times as long.
func hostsWith(hosts []routing.Host, wanted func(routing.Host) bool) (out []routing.Host) {
	for _, h := range hosts {
		if wanted(h) {
			out = append(out, h)
		}
	}
	return out
}

// NormalizesPaths reports whether the paths of a host are compared in another form than
// they came in.
func (d TemplateData) NormalizesPaths() bool {
	return d.PathForm() != routing.AsSent || slices.ContainsFunc(d.Hosts, func(h routing.Host) bool { return h.Form != routing.AsSent }) || d.GuardsSpelling()
}

// GuardsSpelling reports whether a host refuses paths that are not in their normal form.
func (d TemplateData) GuardsSpelling() bool {
	return slices.ContainsFunc(d.Hosts, func(h routing.Host) bool {
		return slices.ContainsFunc(h.Guards, func(g routing.Guard) bool { return g.Spelling })
	})
}

// SeveralPathForms reports whether there is a host that says so.
func (d TemplateData) SeveralPathForms() bool {
	return slices.ContainsFunc(d.Hosts, func(h routing.Host) bool { return h.Form != d.PathForm() })
}

// Guards returns the hosts that refuse paths which servers read in different ways, by key.
func (d TemplateData) Guards() []routing.GuardEntry { return routing.Guards(d.Hosts) }

// Annotation returns the value of an annotation of the objects that the
// template is executed for: of the first one that has it, or "".
func (d TemplateData) Annotation(name string) string { return d.objects().annotation(d.origins, name) }

// newTemplateData returns the data of templates that are executed once.
func newTemplateData(in Input) TemplateData {
	m := in.Model
	authorities := map[string]bool{}
	for _, name := range m.ServerNames {
		if name.Clients != nil {
			authorities[name.Clients.Authority] = true
		}
	}
	ofGateways := slices.ContainsFunc(m.Binds, func(b routing.Bind) bool { return b.Clients != nil }) ||
		slices.ContainsFunc(m.Listeners, func(l routing.Listener) bool { return l.Clients != nil })
	return TemplateData{
		Config: in.Config, Hosts: m.Hosts, Held: m.Held, Backends: m.Backends, Certificates: m.Certificates, ServerNames: m.ServerNames,
		SeveralAuthorities: len(authorities) > 1 || ofGateways,
		Default:            m.Default, DefaultCertificate: m.DefaultCertificate, Listeners: m.Listeners, ErrorPages: m.ErrorPages,
		Userlists: m.Userlists, KnowsCountries: m.Countries != nil,
		Binds: m.Binds, depths: depthsOf(m), splits: m.Splits, connections: m.ConnectionBackends, objects: sync.OnceValue(in.index),
	}
}

// index sorts the objects.
func (in Input) index() *objectIndex {
	if in.Objects == nil {
		return indexObjects(nil, in.Config.Kinds)
	}
	return indexObjects(in.Objects(), in.Config.Kinds)
}

// each returns the dots that a template for each of something is executed
// with; those for backends are [backendPage]s. The zero loop is a template that is executed once.
func (d TemplateData) each(of loop) []TemplateData {
	switch of {
	case eachListener:
		return pages(d, d.Listeners, func(d *TemplateData, l routing.Listener) { d.Listener = l })
	case eachBind:
		return pages(d, d.Binds, func(d *TemplateData, b routing.Bind) { d.Bind = b })
	case eachHost:
		return pages(d, d.Hosts, func(d *TemplateData, h routing.Host) { d.Host = h })
	case eachCertificate:
		return pages(d, d.Certificates, func(d *TemplateData, c routing.Certificate) { d.Certificate = c })
	}
	return []TemplateData{d}
}

func pages[T any](d TemplateData, items []T, set func(*TemplateData, T)) []TemplateData {
	out := make([]TemplateData, len(items))
	for i, item := range items {
		out[i] = d
		out[i].origins = originsOf(item)
		set(&out[i], item)
	}
	return out
}

// originsOf returns the objects that a value of the model came from.
func originsOf(v any) []routing.Origin {
	switch v := v.(type) {
	case routing.Backend:
		return v.Origins
	case FastCGIApp:
		return v.origins
	case routing.Route:
		return []routing.Origin{v.Origin}
	case routing.ExpressionEntry:
		return []routing.Origin{v.Origin}
	case routing.ExpressionPrefix:
		return []routing.Origin{v.Origin}
	case routing.GuardEntry:
		return []routing.Origin{v.Origin}
	case routing.Choice:
		return routeOrigins(v.Routes)
	case decision.Condition:
		return []routing.Origin{v.Origin}
	case decision.Route:
		return []routing.Origin{v.Origin}
	case decision.Pattern:
		return v.Origins
	case decision.Split:
		return []routing.Origin{v.Origin}
	case decision.Next:
		return []routing.Origin{v.Origin}
	case routing.Bind:
		return v.Origins
	case routing.Certificate:
		return known(v.Origin)
	case routing.SnippetLine:
		return known(v.Origin)
	case routing.ConnectionRoute:
		return known(v.Origin)
	case routing.ErrorPage:
		return []routing.Origin{v.Origin}
	case routing.ServerName:
		return []routing.Origin{v.Origin}
	case Object:
		return []routing.Origin{v.Origin}
	case routing.Userlist:
		return v.Origins
	case routing.Host:
		return distinctOrigins(append([]routing.Origin{v.Origin}, routeOrigins(v.Routes)...))
	case routing.Held:
		return known(v.Origin)
	case routing.Listener:
		return listenerOrigins(v)
	}
	return nil
}

// routeOrigins returns the objects of routes, each once.
func routeOrigins(routes []routing.Route) []routing.Origin {
	if len(routes) == 1 { // as most
		return []routing.Origin{routes[0].Origin}
	}
	var out []routing.Origin
	for _, r := range routes {
		out = append(out, r.Origin)
	}
	return distinctOrigins(out)
}

func distinctOrigins(origins []routing.Origin) []routing.Origin {
	if len(origins) <= 8 { // as nearly all: a map would cost more
		var out []routing.Origin
		for _, o := range origins {
			if o != (routing.Origin{}) && !slices.Contains(out, o) {
				if out == nil {
					out = make([]routing.Origin, 0, len(origins))
				}
				out = append(out, o)
			}
		}
		return out
	}
	var out []routing.Origin
	seen := map[routing.Origin]bool{{}: true}
	for _, o := range origins {
		if !seen[o] {
			seen[o] = true
			out = append(out, o)
		}
	}
	return out
}

// known returns an origin, unless it is the configuration: no object is to blame for that.
func known(o routing.Origin) []routing.Origin {
	if o == (routing.Origin{}) {
		return nil
	}
	return []routing.Origin{o}
}

// listenerOrigins returns the objects of a listener's routes, each once.
func listenerOrigins(l routing.Listener) []routing.Origin {
	out := slices.Clip(l.Origins) // what is appended is not the model's
	for _, r := range l.Routes {
		out = union(out, known(r.Origin))
	}
	return out
}

// PassesOn reports whether some of the connections for HTTPS are passed on as
// they are, so that another frontend has the port.
func (d TemplateData) PassesOn() bool {
	return slices.ContainsFunc(d.Listeners, func(l routing.Listener) bool { return l.Protocol == routing.HTTPS && l.Bind == "" })
}

// listOf writes a list of networks, one to a line. Its first line keeps it from
// being empty, which the Dataplane API refuses to store.
func listOf(list routing.NetworkList) *assembly {
	origin := &LineOrigin{Objects: []routing.Origin{list.Origin}}
	a := &assembly{text: []byte("# networks of " + list.String() + "\n"), origins: []*LineOrigin{origin}}
	for _, network := range list.Networks {
		a.text = append(network.AppendTo(a.text), '\n')
		a.origins = append(a.origins, origin)
	}
	return a
}

// countriesFile writes the list of countries as a map for map_ip.
func countriesFile(list *routing.CountryList) *assembly {
	a := &assembly{text: []byte("# networks by country\n"), origins: []*LineOrigin{{Objects: list.Origins}}}
	sources := make([]LineOrigin, len(list.Origins))
	for i := range sources {
		sources[i].Objects = list.Origins[i : i+1]
	}
	for _, n := range list.Networks {
		a.text = append(append(append(n.Network.AppendTo(a.text), ' '), n.Code...), '\n')
		a.origins = append(a.origins, &sources[n.Source])
	}
	return a
}

// LooksUp reports whether a backend has servers whose names HAProxy looks up.
func (d TemplateData) LooksUp() bool {
	looksUp := func(b routing.Backend) bool {
		return slices.ContainsFunc(b.Targets, func(t routing.Target) bool { return t.Name != nil })
	}
	return slices.ContainsFunc(d.Backends, looksUp) || slices.ContainsFunc(d.connections, looksUp)
}

// FastCGIApp is the settings of FastCGI that backends share, and the objects
// that asked for them.
type FastCGIApp struct {
	policy.FastCGI
	origins []routing.Origin
}

// FastCGIApps returns the settings of FastCGI, each once, by name.
func (d TemplateData) FastCGIApps() []FastCGIApp {
	var out []FastCGIApp
	for _, b := range d.Backends {
		if b.Upstream == nil || b.Upstream.FastCGI == nil {
			continue
		}
		at := slices.IndexFunc(out, func(a FastCGIApp) bool { return a.Name() == b.Upstream.FastCGI.Name() })
		if at < 0 {
			at = len(out)
			out = append(out, FastCGIApp{FastCGI: *b.Upstream.FastCGI})
		}
		out[at].origins = append(out[at].origins, b.Origins...)
	}
	slices.SortFunc(out, func(a, b FastCGIApp) int { return cmp.Compare(a.Name(), b.Name()) })
	return out
}
