package snapshots

import (
	"bytes"
	"cmp"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/yamltext"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// ServicePort names one port of a Service by the port's name, as EndpointSlices do. The
// name is empty if the Service has one port without a name.
type ServicePort struct {
	Namespace, Service, Port string
}

// String returns "namespace/service:port", or "namespace/service" for the
// port without a name. [ParseServicePort] reads it.
func (p ServicePort) String() string {
	if p.Port == "" {
		return p.Namespace + "/" + p.Service
	}
	return p.Namespace + "/" + p.Service + ":" + p.Port
}

// ParseServicePort reads what [ServicePort.String] wrote.
func ParseServicePort(s string) (ServicePort, error) {
	object, port, _ := strings.Cut(s, ":")
	name, err := objectname.Parse(object)
	if err != nil || strings.HasSuffix(s, ":") || strings.Contains(port, ":") {
		return ServicePort{}, fmt.Errorf("%q is not namespace/service:port", s)
	}
	return ServicePort{name.Namespace, name.Name, port}, nil
}

// Compare orders by namespace, service and port.
func (p ServicePort) Compare(o ServicePort) int {
	return cmp.Or(cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Service, o.Service), cmp.Compare(p.Port, o.Port))
}

// Endpoint is one address behind a Service port. Draining is set for an endpoint that is
// serving and terminating. It takes new sessions only if all endpoints of the Service are
// terminating.
type Endpoint struct {
	Address  string `json:"address"` // an IP address
	Port     int    `json:"port"`
	Draining bool   `json:"draining,omitempty"`
}

// Compare orders by address and port.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

// EndpointsKind is the KRM kind of endpoints.yaml.
const EndpointsKind = "Endpoints"

// endpointsFile is the content of endpoints.yaml: the endpoints that the compiler saw.
type endpointsFile struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Services   []serviceEndpoints `json:"services"`
}

type serviceEndpoints struct {
	Namespace string     `json:"namespace"`
	Service   string     `json:"service"`
	Port      string     `json:"port,omitempty"`
	Endpoints []Endpoint `json:"endpoints"`
}

// MarshalEndpoints returns the content of endpoints.yaml, sorted, so that the same
// endpoints give the same bytes.
func MarshalEndpoints(endpoints map[ServicePort][]Endpoint) ([]byte, error) {
	f := endpointsFile{APIVersion: APIVersion, Kind: EndpointsKind, Services: []serviceEndpoints{}}
	for _, service := range slices.SortedFunc(maps.Keys(endpoints), ServicePort.Compare) {
		list := slices.SortedFunc(slices.Values(endpoints[service]), Endpoint.Compare)
		if list == nil {
			list = []Endpoint{}
		}
		f.Services = append(f.Services, serviceEndpoints{service.Namespace, service.Service, service.Port, list})
	}
	return yamltext.Marshal(f)
}

// ParseEndpoints reads what [MarshalEndpoints] wrote. Errors wrap [ErrCorrupt].
func ParseEndpoints(data []byte) (map[ServicePort][]Endpoint, error) {
	var f endpointsFile
	if err := DecodeYAML(data, MaxFile, &f); err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrCorrupt, EndpointsFile, err)
	}
	if f.APIVersion != APIVersion || f.Kind != EndpointsKind {
		return nil, fmt.Errorf("%w: %s is %q %q, not %s %s", ErrCorrupt, EndpointsFile, f.APIVersion, f.Kind, APIVersion, EndpointsKind)
	}
	out := make(map[ServicePort][]Endpoint, len(f.Services))
	for _, s := range f.Services {
		service := ServicePort{s.Namespace, s.Service, s.Port}
		if _, twice := out[service]; twice {
			return nil, fmt.Errorf("%w: %s has %s twice", ErrCorrupt, EndpointsFile, service)
		}
		if err := checkEndpoints(s.Endpoints); err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrCorrupt, EndpointsFile, service, err)
		}
		out[service] = s.Endpoints
	}
	return out, nil
}

func checkEndpoints(endpoints []Endpoint) error {
	for i, e := range endpoints {
		if ip, err := netip.ParseAddr(e.Address); err != nil || ip.Zone() != "" {
			return fmt.Errorf("%q is not an IP address", e.Address)
		}
		if e.Port < 1 || e.Port > 65535 {
			return fmt.Errorf("%d is not a port", e.Port)
		}
		if i > 0 && endpoints[i-1].Compare(e) >= 0 {
			return fmt.Errorf("%s is out of order or there twice", e.Address)
		}
	}
	return nil
}

// RecordedEndpoints returns the endpoints that are recorded in the snapshot, and whether it
// has an endpoints.yaml. A snapshot without that file is bound to live endpoints; one with
// an empty file is bound to none.
func (s Snapshot) RecordedEndpoints() (endpoints map[ServicePort][]Endpoint, recorded bool, err error) {
	data, ok := s.File(EndpointsFile)
	if !ok {
		return nil, false, nil
	}
	endpoints, err = ParseEndpoints(data)
	return endpoints, true, err
}

// CertificateMode says which certificate of a Secret belongs to a snapshot, and where it is
// kept.
type CertificateMode string

// The modes. All but the first name one version of the certificate, so that a snapshot with
// another version is another snapshot.
const (
	ModeReference CertificateMode = ""          // whichever certificate is in the Secret when the snapshot is pushed
	ModeExact     CertificateMode = "exact"     // this version, which the Secret has to hold
	ModeSealed    CertificateMode = "sealed"    // this version, encrypted in a file of the snapshot
	ModeCompanion CertificateMode = "companion" // this version, in a Secret beside the snapshot
)

// sealedExtension is the extension of files with sealed certificates.
const sealedExtension = ".age"

// sealedBlock is the PEM type of age's armour. The decoded block begins with sealedMagic.
const (
	sealedBlock = "AGE ENCRYPTED FILE"
	sealedMagic = "age-encryption.org/v1\n"
)

var (
	versionForm   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	recipientForm = regexp.MustCompile(`^age1[0-9a-z]{50,}$`)
)

// ErrNotSealed is returned for a file that is not encrypted but has to be.
var ErrNotSealed = errors.New("not a file that age encrypted")

// Versioned reports whether the reference is to one version of a certificate. The version
// is empty if there was none that could be served when the snapshot was compiled.
func (c CertificateRef) Versioned() bool { return c.Mode != ModeReference }

// SealedFile returns the path of the file with the encrypted certificate, or "" if there is
// none.
func (c CertificateRef) SealedFile() string {
	if c.Mode != ModeSealed || c.Version == "" {
		return ""
	}
	return c.File + sealedExtension
}

// IsSealed reports whether path is the path of an encrypted certificate.
func IsSealed(path string) bool {
	return strings.HasPrefix(path, certificatesFolder) && strings.HasSuffix(path, ".pem"+sealedExtension)
}

// checkSealed checks that every reference to a sealed certificate has its file, that there
// are no others, and that all are encrypted. Only the holder of an identity can check their
// content.
func checkSealed(files []File, refs []CertificateRef, recipients []string) error {
	content := map[string][]byte{}
	for _, f := range files {
		if IsSealed(f.Path) {
			content[f.Path] = f.Content
		}
	}
	for _, ref := range refs {
		path := ref.SealedFile()
		if path == "" {
			continue
		}
		if err := checkArmour(content[path]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(recipients) == 0 {
			return fmt.Errorf("%s is sealed to nobody", path)
		}
		delete(content, path)
	}
	for _, f := range files {
		if _, foreign := content[f.Path]; foreign {
			return fmt.Errorf("%s belongs to no certificate", f.Path)
		}
	}
	for _, r := range recipients {
		if !recipientForm.MatchString(r) {
			return fmt.Errorf("%q is not a recipient of age", r)
		}
	}
	return nil
}

// checkArmour refuses content that is not exactly one armoured age file: no clear text may
// stand before, in or after it.
func checkArmour(content []byte) error {
	block, rest := stdpem.Decode(content)
	if block == nil || block.Type != sealedBlock || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return ErrNotSealed
	}
	if !bytes.HasPrefix(content, []byte("-----BEGIN "+sealedBlock+"-----\n")) || !bytes.HasPrefix(block.Bytes, []byte(sealedMagic)) {
		return ErrNotSealed
	}
	if bytes.Contains(block.Bytes, []byte("PRIVATE KEY")) {
		return ErrNotSealed
	}
	return nil
}

// WithSealed returns the draft with the ciphertexts of another snapshot where that snapshot holds the same
// version of the same certificate for the same recipients. age encrypts to other bytes each time, so without
// this an unchanged certificate would change the file.
func (d Draft) WithSealed(from Snapshot) Draft {
	if !slices.Equal(d.Recipients, from.Manifest.Spec.Recipients) {
		return d
	}
	known := map[string]CertificateRef{}
	for _, ref := range from.Manifest.Spec.Certificates {
		known[ref.SealedFile()] = ref
	}
	same := map[string]bool{}
	for _, ref := range d.Certificates {
		old, ok := known[ref.SealedFile()]
		same[ref.SealedFile()] = ok && old.Version == ref.Version && old.Secret == ref.Secret
	}
	d.Files = slices.Clone(d.Files)
	for i, f := range d.Files {
		if content, there := from.File(f.Path); there && IsSealed(f.Path) && same[f.Path] {
			d.Files[i].Content = content
		}
	}
	return d
}

// Use is what a snapshot takes from a Secret.
type Use string

// The uses of Secrets. The first two are those of a [CertificateRef].
const (
	UseCertificate Use = ""      // tls.crt and tls.key
	UseCA          Use = "CA"    // the certificate authorities under ca.crt
	UseUsers       Use = "users" // the htpasswd lines under auth
	UseValue       Use = "value" // what is under any key, as one word
)

// ErrNoCompanions is returned by stores that cannot keep private content beside a snapshot.
var ErrNoCompanions = errors.New("certificates cannot be kept beside the snapshot in this store")

// Companion is a certificate with its key that is kept beside a snapshot, not in it, for a
// reference of [ModeCompanion].
type Companion struct {
	Version string
	Content Private // PEM, the chain and then the key
}

// hidden replaces private content wherever it would be printed.
const hidden = "(hidden)"

// Private is content that is hidden when a value that holds it is printed.
type Private []byte

// String returns a placeholder instead of the content.
func (Private) String() string { return hidden }

// Format writes a placeholder instead of the content, whatever the verb.
func (Private) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// MarshalText returns a placeholder instead of the content.
func (Private) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// checkCompanions checks that the companions are exactly those that the references name,
// and that each is the version that its reference names.
func checkCompanions(refs []CertificateRef, companions []Companion) error {
	named := map[string]bool{}
	for _, ref := range refs {
		if ref.Mode == ModeCompanion && ref.Version != "" {
			named[ref.Version] = false
		}
	}
	for _, c := range companions {
		there, ok := named[c.Version]
		if version, err := pem.Version(c.Content); !ok || there || err != nil || version != c.Version {
			return fmt.Errorf("companion of version %q belongs to no certificate", c.Version)
		}
		named[c.Version] = true
	}
	for _, ref := range refs {
		if there, ok := named[ref.Version]; ok && !there {
			return fmt.Errorf("certificate %s has no companion", ref.File)
		}
	}
	return nil
}
