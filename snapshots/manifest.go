package snapshots

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/objectname"
)

// The KRM type of a manifest.
const (
	APIVersion   = "hapsnap.dev/v1alpha1"
	ManifestKind = "Snapshot"
)

// Manifest is the content of snapshot.yaml, a KRM object. Spec describes the content of the
// snapshot. Provenance says how it was made, and is not part of the digest.
type Manifest struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   Metadata   `json:"metadata"`
	Spec       Spec       `json:"spec"`
	Provenance Provenance `json:"provenance"`
}

// Metadata holds the snapshot's name, which is its [ID].
type Metadata struct {
	Name string `json:"name"`
}

// Spec says what a snapshot consists of.
type Spec struct {
	Revision     uint64           `json:"revision"`
	Digest       Digest           `json:"digest"`
	Parent       ID               `json:"parent,omitzero"`
	Subject      string           `json:"subject,omitempty"`
	Files        []FileDigest     `json:"files"`
	Certificates []CertificateRef `json:"certificates,omitempty"`
	Recipients   []string         `json:"recipients,omitempty"` // as in a [Draft]
	Quarantined  []Quarantined    `json:"quarantined,omitempty"`
}

// FileDigest is one file of a manifest. SHA256 is in hexadecimal, Size in bytes.
type FileDigest struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// SecretName names a Secret in what is stored. Names of other objects are
// [types.NamespacedName].
type SecretName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name".
func (n SecretName) String() string { return n.Namespace + "/" + n.Name }

// ParseSecretName reads "namespace/name".
func ParseSecretName(s string) (SecretName, error) {
	name, err := objectname.Parse(s)
	return SecretName(name), err
}

// Compare orders names by namespace, then by name.
func (n SecretName) Compare(o SecretName) int {
	return objectname.Compare(types.NamespacedName(n), types.NamespacedName(o))
}

// CertificateRef says that a PEM file, such as "certs/shop_web-tls.pem", comes from a
// Secret and is joined when the snapshot is bound. haproxy.cfg or a crt-list names the
// file. Depending on its use it holds
//
//   - a certificate with its private key, of a Secret of type kubernetes.io/tls, which HAProxy
//     serves to clients or presents to servers;
//   - with [UseCA] the certificate authorities under the key ca.crt of any Secret, for a
//     ca-file such as "certs/ca__shop_clients.pem".
//
// Without a Secret it is the fallback certificate, which the pusher makes.
type CertificateRef struct {
	File   string     `json:"file"`
	Secret SecretName `json:"secret,omitzero"`
	Use    Use        `json:"use,omitempty"`
	// Mode and Version say which certificate of the Secret it is; see [pem.Version]. They
	// are set only for certificates with their keys.
	Mode    CertificateMode `json:"mode,omitempty"`
	Version string          `json:"version,omitempty"`
	// Observed is what the compiler saw of the Secret, if it saw it. It is not part of the
	// digest.
	Observed *ObservedCertificate `json:"observed,omitempty"`
}

func (c CertificateRef) compare(o CertificateRef) int {
	return cmp.Or(cmp.Compare(c.File, o.File), c.Secret.Compare(o.Secret), cmp.Compare(c.Use, o.Use))
}

// Check refuses a reference that no instance could follow.
func (c CertificateRef) Check() error {
	switch {
	case c.Use != UseCertificate && c.Use != UseCA:
		return fmt.Errorf("certificate %s is for the use %q, which is not known", c.File, c.Use)
	case c.Use == UseCA && c.Secret == (SecretName{}):
		return fmt.Errorf("certificate %s is for authorities, and of no Secret", c.File)
	}
	switch {
	case !slices.Contains([]CertificateMode{ModeReference, ModeExact, ModeSealed, ModeCompanion}, c.Mode):
		return fmt.Errorf("certificate %s is kept as %q, which is not known", c.File, c.Mode)
	case c.Versioned() && (c.Use != UseCertificate || c.Secret == SecretName{}):
		return fmt.Errorf("certificate %s has no versions", c.File)
	case c.Version != "" && (!c.Versioned() || !versionForm.MatchString(c.Version)):
		return fmt.Errorf("certificate %s has the version %q", c.File, c.Version)
	}
	return checkName(c.File, certificatesFolder, ".pem")
}

// ObservedCertificate describes a certificate without holding it. Fingerprint is the
// hexadecimal SHA-256 of the DER of the leaf.
type ObservedCertificate struct {
	Fingerprint string    `json:"fingerprint"`
	Names       []string  `json:"names,omitempty"`
	NotAfter    time.Time `json:"notAfter,omitzero"`
	// Version is its [pem.Version]. It is not written, since references to a version hold
	// it.
	Version string `json:"-"`
}

// Quarantined is an object that was left out, and why.
type Quarantined struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
}

// Provenance says how a snapshot was made.
type Provenance struct {
	Time            time.Time `json:"time,omitzero"`
	CompilerVersion string    `json:"compilerVersion,omitempty"`
	HAProxyVersion  string    `json:"haproxyVersion,omitempty"` // the HAProxy that accepted it
	TemplatesDigest Digest    `json:"templatesDigest,omitempty"`
	Inputs          []Input   `json:"inputs,omitempty"`
	// OmittedInputs is how many more inputs there were, if the manifest has no room for all.
	OmittedInputs int `json:"omittedInputs,omitempty"`
	// InputsBeside is how many inputs are in files beside the manifest; see [Manifest.Split].
	InputsBeside int    `json:"inputsBeside,omitempty"`
	Trigger      string `json:"trigger,omitempty"`
	Author       string `json:"author,omitempty"`      // of the change, "" if it is not known
	Traceparent  string `json:"traceparent,omitempty"` // W3C Trace Context
}

// Marshal returns the manifest as YAML. The same value gives the same bytes. A manifest
// that is too large to be read again is an error.
func (m Manifest) Marshal() ([]byte, error) {
	data, err := m.marshal()
	if err == nil && len(data) > MaxManifest {
		err = fmt.Errorf("%s has %d bytes, and may have %d: it names %d objects that were compiled", ManifestFile, len(data), MaxManifest, len(m.Provenance.Inputs))
	}
	return data, err
}

// ParseManifest reads snapshot.yaml. It refuses unknown fields, since they may carry a
// meaning that this version does not know. Errors wrap [ErrCorrupt].
func ParseManifest(data []byte) (Manifest, error) {
	m, written := readWritten(data)
	if !written {
		if err := DecodeYAML(data, MaxManifest, &m); err != nil {
			return Manifest{}, fmt.Errorf("%w: read %s: %w", ErrCorrupt, ManifestFile, err)
		}
	}
	if m.APIVersion != APIVersion || m.Kind != ManifestKind {
		return Manifest{}, fmt.Errorf("%w: %s is %s %s, not %s %s", ErrCorrupt, ManifestFile, m.APIVersion, m.Kind, APIVersion, ManifestKind)
	}
	if err := CheckSizes(m.Spec.Files); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return m, nil
}

// The errors of reading a text as one YAML document.
var (
	errSecondDocument = errors.New("it holds more than one YAML document, and only the first would be read")
	errAlias          = errors.New("it holds a YAML alias, by which a short text can stand for a very long one")
)

// maxValues limits the values in a YAML text. The parser takes about 250 bytes of memory for each value,
// however short the value is. The manifest of 40,000 objects, which is nearly as large as a manifest may be,
// has 560,000 values.
const maxValues = 1_000_000

// DecodeYAML reads a text of at most the given size that holds one YAML document, and
// refuses unknown fields. It also refuses a second document: the YAML parser would ignore
// it, although the person who added it meant something by it.
func DecodeYAML(data []byte, most int, into any) error {
	if len(data) > most {
		return fmt.Errorf("it has %d bytes, and may have %d", len(data), most)
	}
	if values(data) > maxValues {
		return fmt.Errorf("it holds more than %d values", maxValues)
	}
	if !plain(data) {
		if err := checkDocument(data); err != nil {
			return err
		}
	}
	return yaml.UnmarshalStrict(data, into)
}

// values returns an upper limit of the number of values in a YAML text. Each value except
// the first follows one of these characters.
func values(data []byte) int {
	n := 1
	for i, c := range data {
		switch c {
		case '\n', '\r', ',', '[', '{', ':':
			n++
		case '-', '?':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') {
				n++
			}
		}
	}
	return n
}

// notPlain matches what can begin another document or name an anchor, and line breaks that
// Marshal does not write.
var notPlain = regexp.MustCompile("(?m)^(?:---|\\.\\.\\.)|(?:^|[\\s\\[{,:-])&\\S|\r|\u0085|\u2028|\u2029")

// plain reports whether a text is certainly one document without aliases. A mapping that begins in the first
// column ends with the text, or where another document begins. This spares the manifests of large clusters a
// second parser.
func plain(data []byte) bool {
	return len(data) > 0 && (data[0] >= 'a' && data[0] <= 'z' || data[0] >= 'A' && data[0] <= 'Z') && !notPlain.Match(data)
}

// checkDocument returns an error unless a text is one document without aliases. An empty
// document at the end is ignored.
func checkDocument(data []byte) error {
	d := kyaml.NewDecoder(bytes.NewReader(data))
	var first kyaml.Node
	if err := d.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		var more kyaml.Node
		err := d.Decode(&more)
		switch {
		case errors.Is(err, io.EOF):
			return checkAliases(&first)
		case err != nil, !empty(&more):
			return errSecondDocument
		}
	}
}

// empty reports whether a document has no content.
func empty(document *kyaml.Node) bool {
	return len(document.Content) == 0 || len(document.Content) == 1 && document.Content[0].Kind == kyaml.ScalarNode && document.Content[0].Value == ""
}

func checkAliases(n *kyaml.Node) error {
	if n.Kind == kyaml.AliasNode {
		return errAlias
	}
	for _, below := range n.Content {
		if err := checkAliases(below); err != nil {
			return err
		}
	}
	return nil
}

// Input is one object that a snapshot was compiled from.
type Input struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Compare orders inputs by API version, kind, namespace and name.
func (in Input) Compare(o Input) int {
	return cmp.Or(cmp.Compare(in.APIVersion, o.APIVersion), cmp.Compare(in.Kind, o.Kind), cmp.Compare(in.Namespace, o.Namespace), cmp.Compare(in.Name, o.Name))
}

// roomForOthers is the part of a manifest that is reserved for fields without a bound of their own, such as the
// subject.
const roomForOthers = 512 << 10

// omitInputs leaves out the last inputs if the manifest would otherwise be too large to be read. So a cluster
// of any size can be published, since what runs does not depend on the inputs. It counts bytes as Marshal
// writes them, rather too many than too few.
func (m *Manifest) omitInputs() {
	room := MaxManifest - roomForOthers - 140*len(m.Spec.Files)
	for _, f := range m.Spec.Files {
		room -= len(f.Path)
	}
	for _, c := range m.Spec.Certificates {
		room -= 200 + len(c.File) + len(c.Secret.Namespace) + len(c.Secret.Name) + len(c.Version)
		if c.Observed != nil {
			room -= 180
			for _, name := range c.Observed.Names {
				room -= 12 + len(name)
			}
		}
	}
	for _, q := range m.Spec.Quarantined {
		room -= 80 + len(q.Kind) + len(q.Namespace) + len(q.Name) + 2*len(q.Reason)
	}
	for i, in := range m.Provenance.Inputs {
		room -= 95 + len(in.APIVersion) + len(in.Kind) + len(in.Namespace) + len(in.Name) + len(in.UID) + len(in.ResourceVersion)
		if room < 0 {
			m.Provenance.OmittedInputs += len(m.Provenance.Inputs) - i
			m.Provenance.Inputs = m.Provenance.Inputs[:i:i]
			return
		}
	}
}

// InputsFolder is the folder beside snapshot.yaml that has the files of [Manifest.Split].
const InputsFolder = "inputs"

const (
	// fewInputs is the largest number of inputs that stay in the manifest itself, where they are easier to
	// read.
	fewInputs = 512
	// inputsOfAFile is how many inputs a file has, on average. A change of one object makes a new file. With
	// fewer inputs in each, the list of files would be the larger part of the change.
	inputsOfAFile = 128
	// lastInputs is the name of the file whose last input ends no file.
	lastInputs = "last.yaml"
)

// Split returns the manifest without its inputs, and the inputs in files of [InputsFolder]. It is for stores
// that keep each changed file as a whole, such as git. The content of the objects decides where a file ends, so
// an object that changes, comes or goes changes one file, or two at most. Few inputs stay in the manifest, and
// so do inputs that are not in order. [Manifest.Join] undoes it.
func (m Manifest) Split() (Manifest, []File) {
	inputs := m.Provenance.Inputs
	if len(inputs) <= fewInputs || !ascending(inputs) {
		return m, nil
	}
	var files []File
	known, names := make(map[string]string), make(map[string]bool)
	start := 0
	for i, in := range inputs {
		hash := fnv.New64a()
		for _, part := range [...]string{in.APIVersion, in.Kind, in.Namespace, in.Name} {
			_, _ = io.WriteString(hash, part+"\x00") // it never fails
		}
		sum, name := hash.Sum64(), lastInputs
		if sum%inputsOfAFile == 0 {
			name = fmt.Sprintf("%016x.yaml", sum)
		} else if i+1 < len(inputs) {
			continue
		}
		w := listWriter{known: known}
		for _, of := range inputs[start : i+1] {
			w.input("", of)
		}
		if w.failed || names[name] {
			return m, nil
		}
		names[name] = true
		files = append(files, File{Path: path.Join(InputsFolder, name), Content: w.out})
		start = i + 1
	}
	m.Provenance.Inputs, m.Provenance.InputsBeside = nil, len(inputs)
	return m, files
}

func ascending(inputs []Input) bool {
	for i := 1; i < len(inputs); i++ {
		if inputs[i-1].Compare(inputs[i]) >= 0 {
			return false
		}
	}
	return true
}

// Join adds the inputs from the files that [Manifest.Split] made, in any order. A missing file, or one with
// other content, is an error that wraps [ErrCorrupt].
func (m *Manifest) Join(files []File) error {
	var inputs []Input
	room := MaxManifest
	for _, f := range files {
		some, written := readInputs(f.Content)
		if !written || len(f.Content) > room {
			if err := DecodeYAML(f.Content, room, &some); err != nil {
				return fmt.Errorf("%w: read %s: %w", ErrCorrupt, f.Path, err)
			}
		}
		room -= len(f.Content)
		inputs = append(inputs, some...)
	}
	slices.SortFunc(inputs, Input.Compare)
	if len(inputs) != m.Provenance.InputsBeside || !ascending(inputs) || len(m.Provenance.Inputs) > 0 {
		return fmt.Errorf("%w: the files in %s name %d objects, and not the %d that %s speaks of, each once", ErrCorrupt, InputsFolder, len(inputs), m.Provenance.InputsBeside, ManifestFile)
	}
	m.Provenance.Inputs, m.Provenance.InputsBeside = inputs, 0
	return nil
}

// WorkersKey is the key, in the ConfigMap with the status of a fleet, under which the pusher writes
// [Workers], for the compiler to read.
const WorkersKey = "workers"

// Workers says how many workers of a fleet run each snapshot. The zero ID counts the workers whose snapshot is
// not known.
type Workers map[ID]int

// unknownWorkers stands for the zero ID.
const unknownWorkers = "unknown"

// String lists them: "r000011-4f2a90c1de=2 unknown=1".
func (w Workers) String() string {
	var words []string
	for id, n := range w {
		name := id.String()
		if id.IsZero() {
			name = unknownWorkers
		}
		words = append(words, name+"="+strconv.Itoa(n))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// ParseWorkers reads what String made.
func ParseWorkers(text string) (Workers, error) {
	out := Workers{}
	for word := range strings.FieldsSeq(text) {
		name, count, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("workers %q: %q is not a number of them", text, count)
		}
		var id ID
		if name != unknownWorkers {
			if id, err = ParseID(name); err != nil {
				return nil, fmt.Errorf("workers %q: %w", text, err)
			}
		}
		out[id] += n
	}
	return out, nil
}
