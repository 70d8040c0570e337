package ingress

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
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
	// Countries are the ConfigMaps of the list of countries, each as namespace/name, and
	// CountryHeader says that endpoints get the country in a header. CountryMemo remembers the list, or is nil.
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
	// Refused are Ingresses that are left out because of an error that HAProxy or a template found. They are treated like
	// Ingresses that break a rule of the API: if they protect something, their routes are closed.
	Refused map[diag.Object]bool
	// Dropped are those of the Refused whose routes cannot even be closed.
	Dropped map[diag.Object]bool
	// Released are namespaces whose Refused Ingresses do not hold their hosts either.
	Released map[string]bool
	// Paths says how paths are compared; zero is the default.
	Paths config.Paths
	// IgnoreForeign says that annotations of other controllers are not reported.
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
	// TrustsForwarded says that HAProxy trusts headers of proxies in some networks.
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
	// SecretsUnseen says that the translation reads no Secret, and that no finding depends on one: the reader of the
	// findings may have no right to read Secrets.
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

// maxErrorPage is how many bytes a page may have. HAProxy keeps an answer with its headers in a buffer of 16 KiB, and
// answers 500 if it does not fit.
const maxErrorPage = 12 << 10

// pageStatuses are the statuses that HAProxy, or a rule of ours, answers with an
// error page.
var pageStatuses = []int{400, 401, 403, 404, 405, 407, 408, 410, 411, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504}

// pageTypes are the content types by the end of a key.
var pageTypes = map[string]string{
	"html": "text/html; charset=utf-8", "txt": "text/plain; charset=utf-8", "json": "application/json", "xml": "application/xml",
}

var pageForm = regexp.MustCompile(`^([1-5][0-9]{2})(?:\.(html|txt|json|xml))?$`)

// errorPages reads the ConfigMap of the error pages. A page that cannot be used
// is reported, and harms no other.
func errorPages(of string, configMaps inputs.Lookup[corev1.ConfigMap], f *findings) []routing.ErrorPage {
	namespace, name, named := strings.Cut(of, "/")
	if !named {
		return nil
	}
	pages, exists := configMaps.Find(types.NamespacedName{Namespace: namespace, Name: name})
	if !exists {
		f.add(diag.Diagnostic{
			Severity: diag.Error, Object: diag.Object{Kind: "ConfigMap", Namespace: namespace, Name: name},
			Message: "does not exist: error pages are HAProxy's own", Hint: "create it, or correct errorPages of the configuration",
		})
		return nil
	}
	byStatus, keys := map[int]routing.ErrorPage{}, map[int]string{}
	for _, key := range slices.Sorted(maps.Keys(pages.Value.Data)) {
		page, message, hint := readErrorPage(key, pages.Value.Data[key])
		if other, twice := keys[page.Status]; twice && message == "" {
			message, hint = "has the same status as "+printable.Quoted(other), "remove one of the two"
		}
		if message != "" {
			f.reportPage(pages, "data", key, message, hint)
			continue
		}
		page.Origin = originOf(pages, "data", key)
		byStatus[page.Status], keys[page.Status] = page, key
	}
	for _, key := range slices.Sorted(maps.Keys(pages.Value.BinaryData)) {
		f.reportPage(pages, "binaryData", key, "is binary", "use text below data")
	}
	return slices.SortedFunc(maps.Values(byStatus), func(a, b routing.ErrorPage) int { return a.Status - b.Status })
}

func (f *findings) reportPage(pages inputs.Object[corev1.ConfigMap], field, key, message, hint string) {
	f.add(diag.Diagnostic{
		Severity: diag.Error, Position: pages.Position(field, key), Object: pages.Ref, Hint: hint,
		Message: "error page " + printable.Quoted(key) + " " + message + "; it is not used",
	})
}

// readErrorPage reads one key of the ConfigMap, or says what is wrong with it.
func readErrorPage(key, body string) (page routing.ErrorPage, message, hint string) {
	m := pageForm.FindStringSubmatch(key)
	if m == nil {
		return page, "is not named for a status", "use one such as 503, 503.html, 503.txt, 503.json or 503.xml"
	}
	page = routing.ErrorPage{Body: body, Suffix: m[2]}
	page.Status, _ = strconv.Atoi(m[1])
	switch {
	case !slices.Contains(pageStatuses, page.Status):
		return page, "has a status that HAProxy answers nothing with", "use one of " + statusList()
	case strings.TrimSpace(body) == "":
		return page, "is empty", "write a page, or remove the key"
	case len(body) > maxErrorPage:
		return page, fmt.Sprintf("has %d bytes", len(body)), fmt.Sprintf("it may have %d; put pictures and styles elsewhere", maxErrorPage)
	}
	if page.Suffix == "" {
		page.Suffix = sniff(body)
	}
	page.ContentType = pageTypes[page.Suffix]
	return page, "", ""
}

// sniff tells JSON from HTML.
func sniff(body string) string {
	if strings.HasPrefix(strings.TrimSpace(body), "{") && json.Valid([]byte(body)) {
		return "json"
	}
	return "html"
}

func statusList() string {
	var out []string
	for _, status := range pageStatuses {
		out = append(out, strconv.Itoa(status))
	}
	return strings.Join(out, ", ")
}
