package snapshots

import (
	"bytes"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hapsnap/hapsnap/internal/yamltext"
)

// The places at which [Manifest.marshal] inserts the parts that it writes without the library.
const (
	inputsPlace       = "HERE-ARE-THE-INPUTS"
	certificatesPlace = "HERE-ARE-THE-CERTIFICATES"
)

// marshal writes inputs and certificates without the YAML library. The library goes by way of JSON, which took
// half of the memory and a third of the time that a change among 10,000 objects costs. Whatever marshal cannot
// write exactly as the library does, it leaves to the library.
func (m Manifest) marshal() ([]byte, error) {
	frame := m
	size := 0
	if len(m.Provenance.Inputs) > 0 {
		frame.Provenance.Inputs = []Input{{Kind: inputsPlace}}
		size += 160 * len(m.Provenance.Inputs)
	}
	if len(m.Spec.Certificates) > 0 {
		frame.Spec.Certificates = []CertificateRef{{File: certificatesPlace}}
		size += 320 * len(m.Spec.Certificates)
	}
	text, err := yamltext.Marshal(frame)
	if err != nil || size == 0 {
		return text, err
	}
	w := listWriter{out: make([]byte, 0, len(text)+size), known: map[string]string{}}
	// The same text in another field is one line as well, but not one of these.
	if len(m.Provenance.Inputs) > 0 {
		text = w.until(text, "\n  - apiVersion: \"\"\n    kind: "+inputsPlace+"\n    name: \"\"\n")
		for _, in := range m.Provenance.Inputs {
			w.input("  ", in)
		}
	}
	if len(m.Spec.Certificates) > 0 {
		text = w.until(text, "\n  - file: "+certificatesPlace+"\n")
		for _, c := range m.Spec.Certificates {
			w.certificate(c)
		}
	}
	if w.failed {
		return yamltext.Marshal(m)
	}
	return append(w.out, text...), nil
}

// listWriter writes items of lists as the YAML library would: the keys of a mapping in their order.
type listWriter struct {
	out    []byte
	known  map[string]string // texts of scalars that the library was asked for
	failed bool              // something takes more than one line
}

// until writes a text up to a place, and returns what comes after the place.
func (w *listWriter) until(text []byte, place string) []byte {
	before, after, found := bytes.Cut(text, []byte(place))
	w.failed = w.failed || !found
	w.out = append(append(w.out, before...), '\n')
	return after
}

func (w *listWriter) certificate(c CertificateRef) {
	w.key("  - ", "file", c.File)
	if c.Mode != "" {
		w.key("    ", "mode", string(c.Mode))
	}
	if o := c.Observed; o != nil {
		w.text("    observed:\n")
		w.key("      ", "fingerprint", o.Fingerprint)
		if len(o.Names) > 0 {
			w.text("      names:\n")
			for _, name := range o.Names {
				w.text("      - ")
				w.scalar(name)
			}
		}
		if !o.NotAfter.IsZero() {
			at, err := o.NotAfter.MarshalText()
			w.failed = w.failed || err != nil
			w.key("      ", "notAfter", string(at))
		}
	}
	if c.Secret != (SecretName{}) {
		w.text("    secret:\n")
		w.key("      ", "name", c.Secret.Name)
		w.key("      ", "namespace", c.Secret.Namespace)
	}
	if c.Use != "" {
		w.key("    ", "use", string(c.Use))
	}
	if c.Version != "" {
		w.key("    ", "version", c.Version)
	}
}

// input writes an item, each line with an indent.
func (w *listWriter) input(indent string, in Input) {
	w.key(indent+"- ", "apiVersion", in.APIVersion)
	indent += "  "
	w.key(indent, "kind", in.Kind)
	w.key(indent, "name", in.Name)
	for _, field := range [...]struct{ key, value string }{{"namespace", in.Namespace}, {"resourceVersion", in.ResourceVersion}, {"uid", in.UID}} {
		if field.value != "" {
			w.key(indent, field.key, field.value)
		}
	}
}

func (w *listWriter) key(indent, key, value string) {
	w.out = append(append(append(w.out, indent...), key...), ": "...)
	w.scalar(value)
}

func (w *listWriter) text(s string) { w.out = append(w.out, s...) }

// scalar ends a line with a string.
func (w *listWriter) scalar(s string) {
	text, ok := scalar(s, w.known)
	w.failed = w.failed || !ok
	w.out = append(append(w.out, text...), '\n')
}

var (
	// notStrings are words that isPlainText accepts although YAML does not take them for strings. timeForm is
	// that of [time.RFC3339].
	notStrings   = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
	timeForm     = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`)
	wildcardForm = regexp.MustCompile(`^\*\.[A-Za-z0-9.-]+$`)
	// A fingerprint with one of these letters is no number in any base.
	fingerprintForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const lettersOfNoNumber = "acdf"

// isPlainText reports whether YAML takes s for a string without quotes, except for the words of notStrings.
// Such a text begins with a letter, continues with letters, digits and a few signs, and does not end with a
// sign. There are five such texts for each object, and a regular expression took most of the time of a
// manifest.
func isPlainText(s string) bool {
	if s == "" || !isLetter(s[0]) || !isLetter(s[len(s)-1]) && !isDigit(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && c != '.' && c != '/' && c != '_' && c != '-' {
			return false
		}
	}
	return len(s) > len("false") || !notStrings.MatchString(s)
}

// isUUID reports whether s has the form of an API server's UIDs.
func isUUID(s string) bool {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; form[i] == '-' && c != '-' || form[i] != '-' && !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isNumber reports whether s consists of digits, as resource versions do, and does not begin with 0.
func isNumber(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != "" && s[0] != '0'
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scalar returns a string as the YAML library writes it. If it does not know the form, it asks the library,
// once for each string. A string that the library may spread over several lines depends on its place, and
// scalar refuses it.
func scalar(s string, known map[string]string) (text string, ok bool) {
	switch {
	case isUUID(s), isPlainText(s), fingerprintForm.MatchString(s) && strings.ContainsAny(s, lettersOfNoNumber):
		return s, true
	case isNumber(s), timeForm.MatchString(s) && isTime(s):
		return `"` + s + `"`, true
	case wildcardForm.MatchString(s):
		return "'" + s + "'", true
	}
	text, ok = known[s]
	if !ok && !strings.ContainsFunc(s, unicode.IsSpace) {
		data, err := yamltext.Marshal(map[string]string{"k": s})
		text = strings.TrimSuffix(strings.TrimPrefix(string(data), "k: "), "\n")
		ok = err == nil && !strings.Contains(text, "\n")
		if ok {
			known[s] = text
		}
	}
	return text, ok
}

func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

// readWritten reads a manifest as [Manifest.marshal] writes it, inputs and certificates without the YAML library, which
// takes 150 ms for 1,000 Ingresses. It returns false for any other text. It writes what it read once more, and compares, so
// that it takes no text for what the library would read otherwise.
func readWritten(data []byte) (Manifest, bool) {
	if len(data) > MaxManifest {
		return Manifest{}, false
	}
	text := string(data)
	frame := make([]byte, 0, frameSize)
	r := listReader{rest: text}
	var inputs []Input
	if before, list, found := strings.Cut(text, "\n  inputs:\n"); found {
		frame, r.rest = append(append(frame, before...), '\n'), list
		inputs = r.inputs("  ")
	}
	var certificates []CertificateRef
	if before, list, found := strings.Cut(r.rest, "\n  certificates:\n"); found {
		frame, r.rest = append(append(frame, before...), '\n'), list
		for r.begins("  - file: ") {
			certificates = append(certificates, r.certificate())
		}
	}
	frame = append(frame, r.rest...)
	var m Manifest
	if r.failed || DecodeYAML(frame, MaxManifest, &m) != nil {
		return Manifest{}, false
	}
	m.Provenance.Inputs, m.Spec.Certificates = inputs, certificates
	if again, err := m.marshal(); err != nil || !bytes.Equal(again, data) {
		return Manifest{}, false
	}
	return m, true
}

// frameSize is about what a manifest has beside its lists.
const frameSize = 16 << 10

// readInputs reads a file of [Manifest.Split], in the same way.
func readInputs(data []byte) ([]Input, bool) {
	r := listReader{rest: string(data)}
	out := r.inputs("")
	w := listWriter{out: make([]byte, 0, len(data)), known: map[string]string{}}
	for _, in := range out {
		w.input("", in)
	}
	if r.failed || w.failed || !bytes.Equal(w.out, data) {
		return nil, false
	}
	return out, true
}

// listReader reads the items that a [listWriter] wrote.
type listReader struct {
	rest   string
	failed bool // it is not what a listWriter writes
}

func (r *listReader) begins(with string) bool { return strings.HasPrefix(r.rest, with) }

func (r *listReader) inputs(indent string) (out []Input) {
	first := indent + "- apiVersion: "
	indent += "  "
	for r.begins(first) {
		in := Input{APIVersion: r.value(first), Kind: r.value(indent + "kind: "), Name: r.value(indent + "name: ")}
		in.Namespace, in.ResourceVersion, in.UID = r.mayHave(indent+"namespace: "), r.mayHave(indent+"resourceVersion: "), r.mayHave(indent+"uid: ")
		out = append(out, in)
	}
	return out
}

func (r *listReader) certificate() CertificateRef {
	c := CertificateRef{File: r.value("  - file: "), Mode: CertificateMode(r.mayHave("    mode: "))}
	if r.skips("    observed:\n") {
		c.Observed = &ObservedCertificate{Fingerprint: r.value("      fingerprint: ")}
		if r.skips("      names:\n") {
			for r.begins("      - ") {
				c.Observed.Names = append(c.Observed.Names, r.value("      - "))
			}
		}
		if at := r.mayHave("      notAfter: "); at != "" {
			r.failed = r.failed || c.Observed.NotAfter.UnmarshalText([]byte(at)) != nil
		}
	}
	if r.skips("    secret:\n") {
		c.Secret = SecretName{Name: r.value("      name: "), Namespace: r.value("      namespace: ")}
	}
	c.Use, c.Version = Use(r.mayHave("    use: ")), r.mayHave("    version: ")
	return c
}

// skips reports whether the text begins so, and goes past it.
func (r *listReader) skips(text string) bool {
	rest, found := strings.CutPrefix(r.rest, text)
	r.rest = rest
	return found
}

// mayHave returns the scalar of a line that may be there, and "" if it is not.
func (r *listReader) mayHave(key string) string {
	if !r.begins(key) {
		return ""
	}
	return r.value(key)
}

// value returns the scalar of the line that begins with key.
func (r *listReader) value(key string) string {
	ours := r.skips(key)
	line, rest, ended := strings.Cut(r.rest, "\n")
	r.rest, r.failed = rest, r.failed || !ours || !ended
	if len(line) >= 2 && (line[0] == '"' || line[0] == '\'') && line[len(line)-1] == line[0] {
		return line[1 : len(line)-1] // what has an escape is written otherwise
	}
	return line
}
