package ingress

import (
	"time"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The defaults of [Config].
const (
	DefaultIngressClass    = "hapsnap"
	DefaultControllerClass = "hapsnap.dev/ingress-controller"
)

// Config says which Ingresses are translated.
type Config struct {
	// IngressClass is the class that is ours by its name.
	IngressClass string
	// ControllerClass is the spec.controller of the IngressClass objects that
	// are ours.
	ControllerClass string
	// WatchWithoutClass takes Ingresses that name no class, even if no class
	// of ours is the default.
	WatchWithoutClass bool
	// SharedLists are the ConfigMaps, as namespace/name, whose lists of networks
	// every namespace may name.
	SharedLists []string
	// ExternalNames says which Services of type ExternalName are served.
	ExternalNames ExternalNames
	// Countries are the ConfigMaps of the list of countries, each as namespace/name, and
	// CountryHeader says that endpoints are told the country. CountryMemo remembers the list, or is nil.
	Countries     []string
	CountryHeader bool
	CountryMemo   *access.CountryMemo
	// CountryFiles are the files of the list, as they were read.
	CountryFiles []access.CountryFile
	// ErrorPages is the ConfigMap of error pages, as namespace/name, or "".
	ErrorPages string
	// SharedAuthServices are the Services, as namespace/name, that every
	// namespace may ask for authentication.
	SharedAuthServices []string
	// Inspection says which agents may be asked about requests.
	Inspection access.Inspection
	// DefaultCertificate is the Secret whose certificate is served where no other
	// fits, if it has a name.
	DefaultCertificate snapshots.SecretName
	// CertificatesAsSeen says that certificates are those that are seen now, not those
	// that the Secrets hold when a snapshot is pushed.
	CertificatesAsSeen bool
	// Refused are Ingresses that cannot be published for what they say. They are
	// treated like those that break a rule of the API: left out, or closed if they
	// protect something.
	Refused map[diag.Object]bool
	// Dropped are those of the Refused whose routes cannot even be closed.
	Dropped map[diag.Object]bool
	// Released are namespaces whose Refused Ingresses do not even have their hosts held.
	Released map[string]bool
	// Paths says how paths are compared; zero is the default.
	Paths config.Paths
	// IgnoreForeign says nothing of annotations of other controllers.
	IgnoreForeign bool
	// OwnedHosts gives the paths of a host to its owner alone, and to those who share
	// it: by SharedHosts, or by what the owner says.
	OwnedHosts  bool
	SharedHosts []config.SharedHost
	// ReservedDomains are those that only some namespaces may have hosts in.
	ReservedDomains []config.ReservedDomain
	// AllowHeaders are the names of headers that clients may send though endpoints may trust
	// them.
	AllowHeaders []string
	// TrustsForwarded says that headers of proxies count that some network sends.
	TrustsForwarded bool
	// Limits bound what a namespace may ask for; zero ones do not.
	Limits config.Limits
	// Snippets are the namespaces whose Ingresses may bring lines of haproxy.cfg.
	Snippets config.Namespaces
	// HTTPSPort is that of the listener for HTTPS; 0 is none.
	HTTPSPort int
	// Ports are those of the listeners for requests and of the status page, and
	// what they are called. No Service may open them.
	Ports map[int]string
	// TCPServices and TCPAnnotations say which other ports there are.
	TCPServices    []config.TCPService
	TCPAnnotations config.TCPAnnotations
	// SecretsUnseen says that no Secret is looked at, and nothing is said that depends on
	// one: who reads the findings may not be somebody who may read Secrets.
	SecretsUnseen bool
	// Now is when the translation is made. It decides which certificates are
	// reported as expired, and nothing else; zero reports none.
	Now time.Time
}

// withDefaults fills what is empty.
func (c Config) withDefaults() Config {
	if c.IngressClass == "" {
		c.IngressClass = DefaultIngressClass
	}
	if c.ControllerClass == "" {
		c.ControllerClass = DefaultControllerClass
	}
	if c.Paths == (config.Paths{}) {
		c.Paths = config.Default().Paths
	}
	return c
}
