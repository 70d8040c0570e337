package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Limits bound what the objects of one namespace may cost a compile. 0 means no limit.
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
	// they have with one Ingress.
	MinLost int `json:"minLost"`
	// Approve is the digest of the one configuration that may be published although it lost
	// that much, as the compiler's log and status show it: ten or more of its hexadecimal
	// digits. It approves nothing else, and can stay.
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
