package routing

import (
	"cmp"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/printable"
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
	// ErrorPages is the ConfigMap of error pages, as namespace/name, or "".
	ErrorPages string
	// SharedAuthServices are the Services, as namespace/name, that every
	// namespace may ask for authentication.
	SharedAuthServices []string
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

// The annotation that named an Ingress's class before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

// classes knows which class belongs to whom.
type classes struct {
	cfg         Config
	controllers map[string]string // of the IngressClass objects, by name
	isDefault   bool              // a class of ours is the default
	hasDefault  bool              // any class is
	unnamed     string            // the class of Ingresses of ours that name none
}

func newClasses(objects []inputs.Object[networkingv1.IngressClass], cfg Config) classes {
	c := classes{cfg: cfg, controllers: make(map[string]string, len(objects))}
	for _, o := range objects {
		c.controllers[o.Ref.Name] = o.Value.Spec.Controller
		if o.Value.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			c.hasDefault = true
			c.isDefault = c.isDefault || o.Value.Spec.Controller == cfg.ControllerClass
		}
	}
	c.unnamed = cmp.Or(newestDefault(objects, cfg.ControllerClass), cfg.IngressClass)
	return c
}

// nameOf returns the name of the class that an Ingress of ours has.
func (c classes) nameOf(ing ingress) string {
	field := ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	return cmp.Or(ing.Value.Annotations[classAnnotation], field, c.unnamed)
}

// claim reports whether an Ingress is ours, and what its author should know.
func (c classes) claim(ing ingress) (bool, []diag.Diagnostic) {
	annotation, field := ing.Value.Annotations[classAnnotation], ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	switch {
	case annotation != "" && field != "" && field != annotation:
		ours := c.isOursByAnnotation(annotation)
		return ours, c.warnIf(ours || c.isOurs(field), ing, []any{"metadata", "annotations", classAnnotation},
			fmt.Sprintf("annotation %s says %s, and ingressClassName says %s: the annotation wins", classAnnotation, printable.Quoted(annotation), printable.Quoted(field)),
			"remove the annotation")
	case annotation != "":
		return c.isOursByAnnotation(annotation), nil
	case field != "":
		ours := c.isOurs(field)
		_, exists := c.controllers[field]
		return ours, c.warnIf(!ours && !exists && field == c.cfg.IngressClass, ing, []any{"spec", "ingressClassName"},
			fmt.Sprintf("ignored: there is no IngressClass %s", printable.Quoted(field)),
			"create it with spec.controller "+c.cfg.ControllerClass)
	}
	ours := c.isDefault || c.cfg.WatchWithoutClass
	return ours, c.warnIf(!ours && !c.hasDefault, ing, []any{"spec"},
		"ignored: it names no class, and no IngressClass is the default",
		"set ingressClassName: "+c.cfg.IngressClass)
}

// IsOurs reports whether an Ingress is the business of this compiler, as its class
// says.
func IsOurs(ing *networkingv1.Ingress, objects []inputs.Object[networkingv1.IngressClass], cfg Config) bool {
	ours, _ := newClasses(objects, cfg.withDefaults()).claim(ingress{Value: ing})
	return ours
}

// isOurs reports whether the class in the field is ours. Its IngressClass
// decides; manifests without any go by the name alone.
func (c classes) isOurs(name string) bool {
	if controller, ok := c.controllers[name]; ok {
		return controller == c.cfg.ControllerClass
	}
	return len(c.controllers) == 0 && name == c.cfg.IngressClass
}

// isOursByAnnotation reports whether the class in the annotation is ours,
// which needs no IngressClass.
func (c classes) isOursByAnnotation(name string) bool {
	controller, ok := c.controllers[name]
	return name == c.cfg.IngressClass || (ok && controller == c.cfg.ControllerClass)
}

func (c classes) warnIf(condition bool, ing ingress, path []any, message, hint string) []diag.Diagnostic {
	if !condition {
		return nil
	}
	return []diag.Diagnostic{{
		Severity: diag.Warning, Position: ing.Position(path...), Object: ing.Ref, Message: message, Hint: hint,
	}}
}
