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
	// IngressClass is the name of the class that is ours.
	IngressClass string
	// ControllerClass is the spec.controller of those IngressClass objects that are ours.
	ControllerClass string
	// WatchWithoutClass includes Ingresses that name no class, even if no class of ours is
	// the default.
	WatchWithoutClass bool
	// SharedLists are the ConfigMaps, as namespace/name, with lists of networks that every
	// namespace may use.
	SharedLists []string
	// ExternalNames says which Services of type ExternalName are served.
	ExternalNames ExternalNames
	// Countries are the ConfigMaps with the list of countries, each as namespace/name.
	// CountryHeader says that endpoints get the country in a header. CountryMemo remembers
	// the list; it may be nil.
	Countries     []string
	CountryHeader bool
	CountryMemo   *access.CountryMemo
	// CountryFiles are the files of the list, with their content.
	CountryFiles []access.CountryFile
	// ErrorPages is the ConfigMap with the error pages, as namespace/name, or "".
	ErrorPages string
	// SharedAuthServices are the Services, as namespace/name, that every namespace may use
	// for authentication.
	SharedAuthServices []string
	// Inspection says which agents may be asked about requests.
	Inspection access.Inspection
	// DefaultCertificate is the Secret with the certificate that is served if no other
	// fits. The zero name means none.
	DefaultCertificate snapshots.SecretName
	// CertificatesAsSeen says that certificates are served as the compiler sees them now,
	// and not as the Secrets are when a snapshot is pushed.
	CertificatesAsSeen bool
	// Refused are Ingresses that are left out because of an error that HAProxy or a template found. They are treated like
	// Ingresses that break a rule of the API: if they protect something, their routes are closed.
	Refused map[diag.Object]bool
	// Dropped are the Refused Ingresses whose closed routes are dropped as well.
	Dropped map[diag.Object]bool
	// Released are the namespaces whose Refused Ingresses do not hold their hosts.
	Released map[string]bool
	// Paths says how paths are compared. The zero value is the default.
	Paths config.Paths
	// IgnoreForeign says that annotations of other controllers are not reported.
	IgnoreForeign bool
	// OwnedHosts gives the paths of a host only to its owner, and to namespaces with which
	// the host is shared: by SharedHosts, or by the owner.
	OwnedHosts  bool
	SharedHosts []config.SharedHost
	// ReservedDomains are domains in which only some namespaces may have hosts.
	ReservedDomains []config.ReservedDomain
	// AllowHeaders are the names of headers that clients may send although endpoints may
	// trust them.
	AllowHeaders []string
	// TrustsForwarded says that HAProxy trusts the headers of proxies in some networks.
	TrustsForwarded bool
	// Limits are the limits for a namespace. Zero means no limit.
	Limits config.Limits
	// Snippets are the namespaces whose Ingresses may add lines to haproxy.cfg.
	Snippets config.Namespaces
	// HTTPSPort is the port of the listener for HTTPS, or 0 for none.
	HTTPSPort int
	// Ports are the ports of the listeners for requests and of the status page, with their
	// names. No Service may open them.
	Ports map[int]string
	// TCPServices and TCPAnnotations say which other ports are opened.
	TCPServices    []config.TCPService
	TCPAnnotations config.TCPAnnotations
	// SecretsUnseen says that the translation reads no Secret, and that no finding depends
	// on one. The reader of the findings may not be allowed to read Secrets.
	SecretsUnseen bool
	// Now is the time of the translation. It only decides which certificates are reported
	// as expired. The zero time reports none.
	Now time.Time
}

// withDefaults sets the empty fields to their defaults.
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

// maxErrorPage is the largest size of a page in bytes. HAProxy keeps an answer with its
// headers in a buffer of 16 KiB, and answers 500 if the answer does not fit.
const maxErrorPage = 12 << 10

// pageStatuses are the statuses for which HAProxy, or a rule of ours, answers with an error
// page.
var pageStatuses = []int{400, 401, 403, 404, 405, 407, 408, 410, 411, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504}

// pageTypes are the content types, by the end of a key.
var pageTypes = map[string]string{
	"html": "text/html; charset=utf-8", "txt": "text/plain; charset=utf-8", "json": "application/json", "xml": "application/xml",
}

var pageForm = regexp.MustCompile(`^([1-5][0-9]{2})(?:\.(html|txt|json|xml))?$`)

// errorPages reads the ConfigMap with the error pages. A page that cannot be used is
// reported, and the others are used.
func errorPages(of string, configMaps inputs.Lookup[corev1.ConfigMap], f *findings) []routing.ErrorPage {
	namespace, name, named := strings.Cut(of, "/")
	if !named {
		return nil
	}
	full := types.NamespacedName{Namespace: namespace, Name: name}
	pages, exists := configMaps.Find(full)
	if !exists {
		why, hint := configMaps.Missing(full)
		f.add(diag.Diagnostic{
			Severity: diag.Error, Object: diag.Object{Kind: "ConfigMap", Namespace: namespace, Name: name},
			Message: why + ": error pages are HAProxy's own", Hint: hint + " in errorPages of the configuration",
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

// readErrorPage reads one key of the ConfigMap. Otherwise it says what is wrong with the
// page.
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

// sniff returns the content type of a page, JSON or HTML.
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
