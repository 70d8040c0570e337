package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// HostPolicy says which paths of a host namespaces other than its owner get.
type HostPolicy string

// The policies.
const (
	// ShareHosts merges the paths that all namespaces have for a host.
	ShareHosts HostPolicy = "shared"
	// OwnHosts serves the paths of the owner, and of namespaces that the owner or the
	// administrator lets in.
	OwnHosts HostPolicy = "owned"
)

func (p HostPolicy) check(f field.Errors) {
	if p != ShareHosts && p != OwnHosts {
		f.Add(fmt.Sprintf("%q is neither shared nor owned", string(p)), "use shared or owned")
	}
}

// SharedHost is a host that several namespaces share, whatever its owner says.
type SharedHost struct {
	// Host is the name of a host, or a wildcard such as *.shop.example, which covers the
	// hosts below it too.
	Host string `json:"host"`
	// Namespaces are the namespaces that may have paths of the host.
	Namespaces Namespaces `json:"namespaces"`
}

// ReservedDomain is a domain that only some namespaces may have hosts in.
type ReservedDomain struct {
	// Domain is a DNS name. It covers the host of that name and everything below it,
	// wildcards included.
	Domain string `json:"domain"`
	// Namespaces are the namespaces that may name such hosts. With hosts: owned, they share them.
	Namespaces Namespaces `json:"namespaces"`
}

// Contains reports whether a host, perhaps a wildcard such as *.foo.example or
// .foo.example, is in the domain.
func (d ReservedDomain) Contains(host string) bool {
	host = strings.TrimPrefix(strings.TrimPrefix(host, "*"), ".")
	return host == d.Domain || strings.HasSuffix(host, "."+d.Domain)
}

// ReservedSuffixes returns the suffixes of hosts in reserved domains, each with a leading
// dot.
func (c Config) ReservedSuffixes() []string {
	var out []string
	for _, d := range c.ReservedDomains {
		out = append(out, "."+d.Domain)
	}
	return out
}

func (c Config) checkHosts(f field.Errors) {
	c.Hosts.check(f.At("hosts"))
	for i, s := range c.SharedHosts {
		at := f.At("sharedHosts").Element(i)
		checkDomain(at.At("host"), strings.TrimPrefix(s.Host, "*."), s.Host)
		s.Namespaces.check(at.At("namespaces"))
	}
	for i, d := range c.ReservedDomains {
		at := f.At("reservedDomains").Element(i)
		checkDomain(at.At("domain"), d.Domain, d.Domain)
		if len(d.Namespaces) == 0 {
			at.At("namespaces").Add("is empty, so that nobody may have hosts of the domain", "list one or more namespaces")
		}
		d.Namespaces.check(at.At("namespaces"))
		if j := slices.IndexFunc(c.ReservedDomains, func(o ReservedDomain) bool { return o.Domain == d.Domain }); j < i {
			at.At("domain").Add(fmt.Sprintf("%q is already in an entry further up", d.Domain), "list all namespaces in one entry")
		}
	}
}

func checkDomain(f field.Errors, name, written string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		f.Add(fmt.Sprintf("%q is not the name of a host", written), "use a DNS name in lower case, such as shop.example")
	}
}

// Paths says how the paths of requests are compared with those of routes.
type Paths struct {
	// Normalize compares paths in a form in which /admin, //admin, /x/../admin and /%61dmin
	// are the same path. Servers get the path unchanged. It needs a HAProxy with Lua.
	// Without it, paths are compared byte for byte, and what protects /admin does not
	// protect /%61dmin.
	Normalize bool `json:"normalize"`
	// Unsafe says what happens to requests whose path different servers read in different
	// ways, such as /admin%2f, on hosts where something protects a path. With reject
	// HAProxy answers 400. With pass it routes them by the path as written. Hosts without
	// protection always serve them.
	Unsafe UnsafePaths `json:"unsafe"`
	// Parameters says what ";" in a path means. Some servers do not count the rest of the
	// segment as part of the path, so that /admin;x=1 is /admin for them. With reject, such
	// requests are unsafe. With ignore, they are compared without their parameters. With
	// match, ";" is an ordinary character.
	Parameters PathParameters `json:"parameters"`
}

// UnsafePaths says what happens to requests whose path servers read in different ways.
type UnsafePaths string

// The answers.
const (
	RejectUnsafe UnsafePaths = "reject"
	PassUnsafe   UnsafePaths = "pass"
)

// PathParameters says what ";" in a path means.
type PathParameters string

// The meanings.
const (
	RejectParameters PathParameters = "reject"
	IgnoreParameters PathParameters = "ignore"
	MatchParameters  PathParameters = "match"
)

func (p Paths) check(f field.Errors) {
	if p.Unsafe != RejectUnsafe && p.Unsafe != PassUnsafe {
		f.At("unsafe").Add(fmt.Sprintf("%q is neither reject nor pass", string(p.Unsafe)), "use reject or pass")
	}
	if p.Parameters != RejectParameters && p.Parameters != IgnoreParameters && p.Parameters != MatchParameters {
		f.At("parameters").Add(fmt.Sprintf("%q is not possible", string(p.Parameters)), "use reject, ignore or match")
	}
}

// Shared lists what objects of every namespace may name, each as namespace/name. All other
// objects can be named by objects of their own namespace only.
type Shared struct {
	// NetworkLists are ConfigMaps whose keys are lists of networks, such as one list for
	// each country, for allow-list, deny-list and rate-limit-exempt.
	NetworkLists []string `json:"networkLists"`
	// AuthServices are Services that auth-url may name.
	AuthServices []string `json:"authServices"`
	// WAFPolicies are ConfigMaps with policies that hapsnap.dev/waf may name.
	WAFPolicies []string `json:"wafPolicies"`
}

func (s Shared) check(f field.Errors) {
	for i, name := range s.NetworkLists {
		f.At("networkLists").Element(i).Add(checkShared(name), "use the namespace and the name of a ConfigMap, such as edge/countries")
	}
	for i, name := range s.AuthServices {
		f.At("authServices").Element(i).Add(checkShared(name), "use the namespace and the name of a Service, such as edge/oauth2-proxy")
	}
	for i, name := range s.WAFPolicies {
		f.At("wafPolicies").Element(i).Add(checkShared(name), "use the namespace and the name of a ConfigMap, such as edge/strict")
	}
}

func checkShared(name string) string {
	object, err := objectname.Parse(name)
	if err == nil && len(validation.IsDNS1123Label(object.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(object.Name)) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is not namespace/name", name)
}

// ExternalNames says which Services of type ExternalName are served.
type ExternalNames struct {
	// Policy says whether they are served. With refuse, their routes answer 503.
	Policy ExternalNamePolicy `json:"policy"`
	// Domains are the names that Services may lead to; "*." matches any number of labels,
	// as in *.example.com. If empty, all names are served except those that lead into the
	// cluster or to the machine: localhost, names of one label, Services of other
	// namespaces, and the metadata services of clouds. Nobody then gets an answer from the
	// machine itself, its link, or such a metadata service, whatever name led there. A listed
	// name is always served, wherever it leads.
	Domains []string `json:"domains"`
}

// Withheld returns the networks from which no answer is passed on, since anybody may have a name server of their own
// that names an address there. There are none if an administrator has listed the names.
func (e ExternalNames) Withheld() (out []string) {
	if len(e.Domains) > 0 {
		return nil
	}
	for _, network := range live.DefaultRefused {
		out = append(out, network.String())
	}
	return out
}

// ExternalNamePolicy says whether Services of type ExternalName are served.
type ExternalNamePolicy string

// The policies.
const (
	AllowExternalNames  ExternalNamePolicy = "allow"
	RefuseExternalNames ExternalNamePolicy = "refuse"
)

func (e ExternalNames) check(f field.Errors) {
	if e.Policy != AllowExternalNames && e.Policy != RefuseExternalNames {
		f.At("policy").Add(fmt.Sprintf("%q is neither allow nor refuse", string(e.Policy)), "use allow or refuse")
	}
	for i, d := range e.Domains {
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(d, "*."))) > 0 {
			f.At("domains").Element(i).Add(fmt.Sprintf("%q is not a DNS name", d), "use names such as partner.example, or *.partner.example for every name below it")
		}
	}
}

// ForeignAnnotations says what happens to annotations of other controllers that hapsnap
// does not follow.
type ForeignAnnotations string

// The answers.
const (
	// CloseForeign reports each of them. If one protects something, it closes the routes of
	// its Ingress.
	CloseForeign ForeignAnnotations = "close"
	// IgnoreForeign does not report them.
	IgnoreForeign ForeignAnnotations = "ignore"
)

func (a ForeignAnnotations) check(f field.Errors) {
	if a != CloseForeign && a != IgnoreForeign {
		f.Add(fmt.Sprintf("%q is neither close nor ignore", string(a)), "use close or ignore")
	}
}

// Affinity configures the cookies that keep a client's session with one endpoint.
type Affinity struct {
	// KeySecret is the Secret, as namespace/name, with the key of the cookies. A cookie is
	// a hash of this key and an endpoint's address, so that every HAProxy knows it. The
	// pusher inserts the key; no snapshot holds it. Changing it ends all sessions. Without
	// a Secret the key is public: then everybody who has a cookie can find out the
	// endpoint's address, and everybody who knows an address can make the cookie that leads
	// to it.
	KeySecret string `json:"keySecret"`
	// Key is the key within the Secret.
	Key string `json:"key"`
}

// secretKeyForm matches what the API allows as a key of a Secret.
var secretKeyForm = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

func (a Affinity) check(f field.Errors) {
	if a.KeySecret != "" {
		f.At("keySecret").Add(checkShared(a.KeySecret), "use the namespace and the name of a Secret, or leave it out")
	}
	if !secretKeyForm.MatchString(a.Key) {
		f.At("key").Add(fmt.Sprintf("%q is not a key of a Secret", a.Key), "use letters, digits, -, _ and .")
	}
}

// Snippets says who may write lines of haproxy.cfg.
type Snippets struct {
	// Namespaces are the namespaces whose Ingresses may use hapsnap.dev/snippet. People who may
	// write there what HAProxy does can read the files and the environment of HAProxy,
	// certificates included, and change what happens to the requests of others. Allow only
	// people who may see and do all that.
	Namespaces Namespaces `json:"namespaces"`
}

func (c Config) checkErrorPages(f field.Errors) {
	if c.ErrorPages != "" {
		f.Add(checkShared(c.ErrorPages), "use the namespace and the name of a ConfigMap, such as edge/error-pages")
	}
}

// IngressStatus says which addresses the compiler writes into the status of Ingresses.
type IngressStatus struct {
	// Service is the Service, as namespace/name, whose addresses are written: the addresses
	// of its load balancer and its external IPs; without a load balancer its external name,
	// its external IPs or its cluster IP. The compiler must read the Service. While it does not
	// exist, statuses are not changed.
	Service string `json:"service"`
	// Addresses are IP addresses and host names, instead of a Service.
	Addresses []string `json:"addresses"`
}

func (s IngressStatus) check(f field.Errors) {
	if s.Service != "" {
		f.At("service").Add(checkShared(s.Service), "use the namespace and the name of a Service, such as edge/haproxy")
	}
	if s.Service != "" && len(s.Addresses) > 0 {
		f.At("addresses").Add("are given besides a Service", "use one or the other")
	}
	for i, text := range s.Addresses {
		ip, err := netip.ParseAddr(text)
		if (err != nil || ip.Zone() != "") && len(validation.IsDNS1123Subdomain(text)) > 0 {
			f.At("addresses").Element(i).Add(fmt.Sprintf("%q is neither an IP address nor a host name", text), "use such as 192.0.2.10 or edge.example.com")
		}
	}
}

// Limits bound what the objects of one namespace may cost a compile, and HAProxy. 0 means no limit.
type Limits struct {
	// IngressRoutes limits the routes of one Ingress: its paths, once for each name of
	// their host, and the hosts of its tls entries.
	IngressRoutes int `json:"ingressRoutes"`
	// NamespaceRoutes limits the routes of all Ingresses of a namespace, and by themselves the matches of its
	// routes of Gateways. So do the other limits of namespaces.
	NamespaceRoutes int `json:"namespaceRoutes"`
	// IngressRouteBytes limits the bytes of the hosts and paths of the routes of one
	// Ingress, as they stand in HAProxy's maps.
	IngressRouteBytes int `json:"ingressRouteBytes"`
	// NamespaceRouteBytes limits these bytes for all Ingresses of a namespace together.
	NamespaceRouteBytes int `json:"namespaceRouteBytes"`
	// IngressOptionBytes limits the bytes of an Ingress's hapsnap.dev annotations and those
	// of its Services. A Service's annotations count once for each of its ports that the
	// Ingress leads to, since each has a HAProxy backend with these options.
	IngressOptionBytes int `json:"ingressOptionBytes"`
	// NamespaceOptionBytes limits these bytes for all Ingresses of a namespace together, and by themselves the
	// texts of the policies that they name with hapsnap.dev/waf, once for each backend.
	NamespaceOptionBytes int `json:"namespaceOptionBytes"`
	// NamespaceListBytes limits the bytes of the lists of networks in ConfigMaps of a
	// namespace that options name. Lists in shared.networkLists do not count.
	NamespaceListBytes int `json:"namespaceListBytes"`
	// NamespaceWAFPolicies limits the ConfigMaps with policies of a namespace that hapsnap.dev/waf names. Each
	// costs an agent memory, and time when it is first seen. Those in shared.wafPolicies do not count.
	NamespaceWAFPolicies int `json:"namespaceWAFPolicies"`
	// NamespaceCertificates limits the Secrets with certificates, of servers, clients and authorities, that the objects of a
	// namespace name. HAProxy reads each of them at each reload, which takes one to two milliseconds.
	// Authorities count more, since they take longer: one for each 4 KiB, and one for each 64 KiB at each host whose clients
	// need a certificate of theirs.
	NamespaceCertificates int `json:"namespaceCertificates"`
	// NamespaceExternalNames limits the names to which the Services of type ExternalName lead that the objects of a namespace
	// use. Each HAProxy asks the name servers, which others need as well, about each of them every dns.refresh.
	NamespaceExternalNames int `json:"namespaceExternalNames"`
	// NamespacePorts limits the ports that listeners in the Gateways and ListenerSets of a namespace open, at all addresses
	// together. Each takes file descriptors of HAProxy, which does not start without enough of them.
	NamespacePorts int `json:"namespacePorts"`
	// NamespaceCountedClients limits how many clients all rate limits of a namespace count at a time. Each may take 256
	// bytes of each HAProxy's memory. Beyond that, each limit of the namespace counts fewer clients.
	NamespaceCountedClients int `json:"namespaceCountedClients"`
	// CountedClients limits the same for all namespaces together. Beyond that, the limits of those namespaces count
	// fewer clients that count most.
	CountedClients int `json:"countedClients"`
	// SnapshotBytes limits the bytes of the files of a snapshot: haproxy.cfg, maps and lists. If there are more, the
	// namespaces that have most lose their youngest objects. A store in ConfigMaps takes no more than the default; one in git
	// or a directory takes 268435456.
	SnapshotBytes int `json:"snapshotBytes"`
}

func (l Limits) check(f field.Errors) {
	for _, field := range []struct {
		name  string
		value int
	}{
		{"ingressRoutes", l.IngressRoutes},
		{"namespaceRoutes", l.NamespaceRoutes},
		{"ingressRouteBytes", l.IngressRouteBytes},
		{"namespaceRouteBytes", l.NamespaceRouteBytes},
		{"ingressOptionBytes", l.IngressOptionBytes},
		{"namespaceOptionBytes", l.NamespaceOptionBytes},
		{"namespaceListBytes", l.NamespaceListBytes},
		{"namespaceWAFPolicies", l.NamespaceWAFPolicies},
		{"namespaceCertificates", l.NamespaceCertificates},
		{"namespaceExternalNames", l.NamespaceExternalNames},
		{"namespacePorts", l.NamespacePorts},
		{"namespaceCountedClients", l.NamespaceCountedClients},
		{"countedClients", l.CountedClients},
		{"snapshotBytes", l.SnapshotBytes},
	} {
		if field.value < 0 {
			f.At(field.name).Add(fmt.Sprintf("%d is not a limit", field.value), "use 1 or more, or 0 for none")
		}
	}
}

// ShrinkGuard says when a configuration that lost much at once waits for
// somebody to approve it.
type ShrinkGuard struct {
	// LostPercent is the share of the backends with servers, or of the hosts, in percent,
	// that must be gone at once. 0 turns the guard off.
	LostPercent int `json:"lostPercent"`
	// MinLost is how many of them must be gone at least: small set-ups lose half of what
	// they have with one Ingress. It is also how many backends or hosts other namespaces must
	// have, if the loss of one namespace or a few is not to hold back their changes.
	MinLost int `json:"minLost"`
	// Approve is the digest of the configuration that may be published although it lost
	// that much, as the compiler's log and status show it: ten or more of its hexadecimal
	// digits. The compiler that held it back also publishes a later one in its place, if that has
	// lost no more. It approves nothing else, and can stay.
	Approve string `json:"approve"`
}

// digestForm matches valid values of approve.
var digestForm = regexp.MustCompile(`^(sha256:)?[0-9a-f]{10,64}$`)

// Approves reports whether a digest is approved.
func (s ShrinkGuard) Approves(digest string) bool {
	approved := strings.TrimPrefix(s.Approve, "sha256:")
	return approved != "" && strings.HasPrefix(strings.TrimPrefix(digest, "sha256:"), approved)
}

func (s ShrinkGuard) check(f field.Errors) {
	if s.LostPercent < 0 || s.LostPercent > 100 {
		f.At("lostPercent").Add(fmt.Sprintf("%d is not a percentage", s.LostPercent), "use 1 to 100, or 0 for no guard")
	}
	if s.MinLost < 1 {
		f.At("minLost").Add(fmt.Sprintf("%d is not a number of backends", s.MinLost), "use 1 or more")
	}
	if s.Approve != "" && !digestForm.MatchString(s.Approve) {
		f.At("approve").Add(fmt.Sprintf("%q is not a digest", s.Approve), "use the one that compiler status names, such as 9f3ac01b2d")
	}
}

// Admission says how the admission webhook answers.
type Admission struct {
	// FailurePolicy says what happens to an object that the webhook cannot judge, because
	// the compiler does not know all objects yet, or HAProxy cannot be run: Ignore allows
	// it with a warning, Fail denies it. These are the words of a
	// ValidatingWebhookConfiguration, whose own failurePolicy says the same about a webhook
	// that cannot be reached. If a review ran out of time, the client has to send the
	// object again.
	FailurePolicy FailurePolicy `json:"failurePolicy"`
}

// FailurePolicy says what happens to objects that cannot be judged.
type FailurePolicy string

// The failure policies, in the words of admissionregistration.k8s.io/v1.
const (
	IgnoreFailure FailurePolicy = "Ignore"
	FailClosed    FailurePolicy = "Fail"
)

func (a Admission) check(f field.Errors) {
	if a.FailurePolicy != IgnoreFailure && a.FailurePolicy != FailClosed {
		f.At("failurePolicy").Add(fmt.Sprintf("%q is neither Ignore nor Fail", string(a.FailurePolicy)), "use Ignore or Fail")
	}
}

// DNS says how HAProxy resolves the names of Services of type ExternalName while it runs.
// If a name cannot be resolved, its own routes answer 503, and no others.
type DNS struct {
	// Nameservers are the IP addresses of name servers, with or without a port: 10.96.0.10,
	// 10.96.0.10:5353 or [fd00::10]:53. If empty, HAProxy asks those of its own
	// /etc/resolv.conf, which it reads when it starts.
	Nameservers []string `json:"nameservers"`
	// Refresh is the time after which HAProxy resolves a name again.
	Refresh Duration `json:"refresh"`
	// Prefer is the address family that HAProxy takes if a name has both.
	Prefer Family `json:"prefer"`
}

// Family is a family of IP addresses.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

func (d DNS) check(f field.Errors) {
	for i, s := range d.Nameservers {
		if _, err := nameserver(s); err != nil {
			f.At("nameservers").Element(i).Add(fmt.Sprintf("%q is not an IP address, perhaps with a port", s), "use such as 10.96.0.10, 10.96.0.10:5353 or [fd00::10]:53")
		}
	}
	checkDuration(f.At("refresh"), d.Refresh)
	if d.Prefer != IPv4 && d.Prefer != IPv6 {
		f.At("prefer").Add(fmt.Sprintf("%q is neither ipv4 nor ipv6", string(d.Prefer)), "use ipv4 or ipv6")
	}
}

// dnsPort is where name servers listen.
const dnsPort = 53

// nameserver reads the address of a name server.
func nameserver(s string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return netip.AddrPortFrom(ip, dnsPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err == nil && (a.Addr().Zone() != "" || a.Port() == 0) {
		err = fmt.Errorf("%q has a zone or no port", s)
	}
	return a, err
}

// Addresses returns the name servers with their ports.
func (d DNS) Addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range d.Nameservers {
		if a, err := nameserver(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}
