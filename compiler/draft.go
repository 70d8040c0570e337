package compiler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
	"github.com/hapsnap/hapsnap/templates"
)

// leftOut returns the objects with errors, each with its first error.
func leftOut(found []diag.Diagnostic) []snapshots.Quarantined {
	var out []snapshots.Quarantined
	seen := map[diag.Object]bool{{}: true}
	for _, d := range found {
		if d.Severity != diag.Error || seen[d.Object] {
			continue
		}
		seen[d.Object] = true
		out = append(out, snapshots.Quarantined{
			Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name, Reason: d.Message,
		})
	}
	return out
}

// draft makes the draft for a result without the objects that are left out.
func (c *compilation) draft(r Result, left []snapshots.Quarantined) (snapshots.Draft, error) {
	d := snapshots.Draft{
		Files: r.Artifact.Files, Certificates: r.Artifact.Certificates,
		Quarantined: withoutSome(left), Time: c.in.Now,
		Provenance: snapshots.Provenance{
			CompilerVersion: c.in.CompilerVersion, HAProxyVersion: c.in.HAProxyVersion,
			TemplatesDigest: c.in.Templates.Digest(), Inputs: c.in.Objects.Provenance(), Trigger: c.in.Trigger,
		},
	}
	mode := c.in.Config.Certificates.RefMode()
	// A reference names the version of the certificate that this compile saw. If it saw none that can be served, the
	// version stays empty. Then a push does not use whatever the Secret contains by that time.
	references := slices.Clone(d.Certificates)
	for i, ref := range references {
		if ref.Use != snapshots.UseCertificate || ref.Secret == (snapshots.SecretName{}) {
			continue
		}
		references[i].Mode = mode
		if ref.Observed != nil && mode != snapshots.ModeReference {
			references[i].Version = ref.Observed.Version
		}
	}
	d.Certificates = withFewerNames(references, mode)
	switch mode {
	case snapshots.ModeSealed:
		if err := seal(&d, c.in.Objects, c.in.Config.Certificates.Recipients, c.in.Seals); err != nil {
			return snapshots.Draft{}, err
		}
	case snapshots.ModeCompanion:
		if err := accompany(&d, c.in.Objects); err != nil {
			return snapshots.Draft{}, err
		}
	case snapshots.ModeReference, snapshots.ModeExact:
	}
	if c.in.Config.Endpoints == config.Recorded {
		file, err := recordEndpoints(r.Artifact, c.in.Objects)
		if err != nil {
			return snapshots.Draft{}, err
		}
		d.Files = append(d.Files[:len(d.Files):len(d.Files)], file)
	}
	return d, nil
}

// recordEndpoints makes the file with the endpoints for an artifact.
func recordEndpoints(a render.Artifact, in inputs.Inputs) (snapshots.File, error) {
	named, err := endpointsOf(a, in)
	if err != nil {
		return snapshots.File{}, fmt.Errorf("record endpoints: %w", err)
	}
	content, err := snapshots.MarshalEndpoints(named)
	if err != nil {
		return snapshots.File{}, fmt.Errorf("record endpoints: %w", err)
	}
	return snapshots.File{Path: snapshots.EndpointsFile, Content: content}, nil
}

// endpointsOf returns the endpoints of the Services that the artifact has directives for, as far as they are among the
// inputs. A Service without endpoints is in the result too.
func endpointsOf(a render.Artifact, in inputs.Inputs) (map[snapshots.ServicePort][]snapshots.Endpoint, error) {
	directives, err := bind.Directives(snapshots.Snapshot{Files: a.Files}.Config())
	if err != nil {
		return nil, err
	}
	all := live.Endpoints(inputs.Values(in.EndpointSlices))
	named := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for _, d := range directives {
		named[d.Service] = all[d.Service]
	}
	return named, nil
}

// certificates finds the certificates of the Secrets among the inputs, as they are served.
type certificates map[snapshots.SecretName]int

func certificatesIn(in inputs.Inputs) certificates {
	out := certificates{}
	for i, s := range in.Secrets {
		out[snapshots.SecretName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = i
	}
	return out
}

// of returns the certificate of a Secret that is known to hold one.
func (c certificates) of(in inputs.Inputs, name snapshots.SecretName) ([]byte, error) {
	at, exists := c[name]
	if !exists {
		return nil, pem.ErrNoCertificate
	}
	return live.Certificate(*in.Secrets[at].Value)
}

// accompany adds the certificates of a draft as companions. It adds each version once.
func accompany(d *snapshots.Draft, in inputs.Inputs) error {
	known, added := certificatesIn(in), map[string]bool{}
	for _, ref := range d.Certificates {
		if ref.Version == "" || added[ref.Version] {
			continue
		}
		content, err := known.of(in, ref.Secret)
		if err != nil {
			return fmt.Errorf("take certificate of Secret %s: %w", ref.Secret, err)
		}
		added[ref.Version] = true
		d.Companions = append(d.Companions, snapshots.Companion{Version: ref.Version, Content: content})
	}
	return nil
}

// seal adds the certificates of a draft in encrypted form.
func seal(d *snapshots.Draft, in inputs.Inputs, to []string, memo *sealMemo) error {
	recipients, err := sealing.NewRecipients(to)
	if err != nil {
		return fmt.Errorf("seal certificates: %w", err)
	}
	known := certificatesIn(in)
	d.Files = slices.Clone(d.Files)
	for _, ref := range d.Certificates {
		if ref.SealedFile() == "" {
			continue
		}
		content, err := memo.seal(recipients, ref.Version, func() ([]byte, error) { return known.of(in, ref.Secret) })
		if err != nil {
			return fmt.Errorf("seal certificate of Secret %s: %w", ref.Secret, err)
		}
		d.Files = append(d.Files, snapshots.File{Path: ref.SealedFile(), Content: content})
		d.Recipients = recipients.Names()
	}
	return nil
}

// sealMemo remembers sealed certificates for the next compile. It holds those that the last two compiles used, and
// nothing unencrypted. A nil memo remembers nothing.
type sealMemo struct{ before, now map[string][]byte }

func newSealMemo() *sealMemo { return &sealMemo{now: map[string][]byte{}} }

// begin begins a compile.
func (m *sealMemo) begin() {
	if m != nil {
		m.before, m.now = m.now, map[string][]byte{}
	}
}

// seal encrypts a version of a certificate. It reads the certificate only if the memo does not have it.
func (m *sealMemo) seal(to sealing.Recipients, version string, read func() ([]byte, error)) ([]byte, error) {
	if m == nil {
		m = newSealMemo()
	}
	key := strings.Join(append(to.Names(), version), " ")
	for _, known := range []map[string][]byte{m.now, m.before} {
		if sealed, ok := known[key]; ok {
			m.now[key] = sealed
			return sealed, nil
		}
	}
	plain, err := read()
	if err != nil {
		return nil, err
	}
	sealed, err := to.Seal(plain)
	if err == nil {
		m.now[key] = sealed
	}
	return sealed, err
}

// keyMemo remembers which kinds of keys the Secrets of the last compile hold. A Secret does not change once it was given.
// A nil memo remembers nothing.
type keyMemo struct {
	known map[*corev1.Secret]validate.KeyType
	read  int // how many certificates were read
}

// of returns the kinds of keys of the Secrets with certificates.
func (m *keyMemo) of(secrets []inputs.Object[corev1.Secret]) map[snapshots.SecretName]validate.KeyType {
	if m == nil {
		m = &keyMemo{}
	}
	out, now := make(map[snapshots.SecretName]validate.KeyType, len(secrets)), make(map[*corev1.Secret]validate.KeyType, len(secrets))
	for _, s := range secrets {
		certificates := s.Value.Data["tls.crt"]
		if len(certificates) == 0 {
			continue
		}
		kind, known := m.known[s.Value]
		if !known {
			kind = validate.KeyTypeOf(certificates)
			m.read++
		}
		out[snapshots.SecretName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}], now[s.Value] = kind, kind
	}
	m.known = now
	return out
}

// privateOf returns the values of Secrets that must not be published. It includes all Secrets that were read, even in
// namespaces from which nothing is compiled.
func privateOf(in Input) *leak.Index {
	p := leak.Public{Knows: knownIn(in)}
	for _, text := range in.Config.PublicSecrets {
		if name, err := snapshots.ParseSecretName(text); err == nil { // the configuration was checked, so this always holds
			p.Secrets = append(p.Secrets, name)
		}
	}
	secrets := make([]*corev1.Secret, len(in.Objects.Secrets))
	for i, s := range in.Objects.Secrets {
		secrets[i] = s.Value
	}
	return in.Secrets.Index(secrets, p)
}

// generatedNames matches names that hapsnap makes, such as names of session cookies.
var generatedNames = regexp.MustCompile(`^hapsnap[-_][0-9a-z_-]+$`)

// knownIn says what is known about a value without the Secrets. A value is harmless if it is a name of an object or
// host, a name that hapsnap makes of those, or a word of the shipped templates or the default configuration. A value in
// an administrator's templates or configuration is known from there.
func knownIn(in Input) func(value []byte) leak.Knowledge {
	var names map[string]bool
	var configured, usual []string
	return func(value []byte) leak.Knowledge {
		if names == nil {
			names, configured, usual = namesIn(in.Objects), textsIn(in.Config), textsIn(usualConfig())
		}
		contains := func(text string) bool { return strings.Contains(text, string(value)) }
		switch {
		case isName(names, string(value)), generatedNames.Match(value), isShipped(value), slices.ContainsFunc(usual, contains):
			return leak.Harmless
		case slices.ContainsFunc(configured, contains), in.Templates != nil && in.Templates.Contains(value):
			return leak.Written
		}
		return leak.Unknown
	}
}

// isName reports whether a value is a name, or is made of names, as the names of backends, files and keys of maps are.
func isName(names map[string]bool, value string) bool {
	if names[value] {
		return true
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("_.:/|", r) })
	isPart := func(part string) bool {
		_, notPort := strconv.ParseUint(part, 10, 16)
		return names[part] || notPort == nil || part == "http" || part == "https"
	}
	return len(parts) > 1 && !slices.ContainsFunc(parts, func(part string) bool { return !isPart(part) })
}

// usualConfig returns the empty configuration, with all defaults.
func usualConfig() config.Config {
	c := config.Default()
	c.TLS = c.TLS.Effective()
	return c
}

// textsIn returns all texts in a configuration.
func textsIn(c config.Config) []string {
	var fields map[string]any
	if text, err := json.Marshal(c); err != nil || json.Unmarshal(text, &fields) != nil {
		return nil // fewer values are known then, and more are refused
	}
	var out []string
	inputs.EachField(fields, func(_ []any, text string) { out = append(out, text) })
	return out
}

// namesIn returns the names of objects, namespaces and hosts.
func namesIn(in inputs.Inputs) map[string]bool {
	out := map[string]bool{}
	for _, i := range in.Provenance() {
		out[i.Namespace], out[i.Name] = true, true
	}
	for _, o := range in.Ingresses {
		for _, rule := range o.Value.Spec.Rules {
			out[rule.Host] = true
		}
		for _, tls := range o.Value.Spec.TLS {
			for _, host := range tls.Hosts {
				out[host] = true
			}
		}
	}
	for _, o := range in.Gateway.Gateways {
		for _, l := range o.Value.Spec.Listeners {
			out[string(l.Name)] = true
			if l.Hostname != nil {
				out[string(*l.Hostname)] = true
			}
		}
	}
	for _, hosts := range in.Gateway.Hostnames() {
		for _, host := range hosts {
			out[string(host)] = true
		}
	}
	return out
}

// isShipped reports whether a value is part of a shipped template.
func isShipped(value []byte) bool {
	found := false
	_ = fs.WalkDir(templates.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || found {
			return err
		}
		text, err := templates.FS.ReadFile(path)
		found = bytes.Contains(text, value)
		return err
	})
	return found
}

// mostWords is how many characters a message or a hint may have.
const mostWords = 2000

// redacted returns diagnostics without private material, sorted. Diagnostics appear in the manifest, in logs and in
// Events.
//
// It shortens both: they may quote a line of a megabyte, which a log and a report would hold. What is cut first would not
// be found any more, so that comes last.
func (c *compilation) redacted(ds []diag.Diagnostic) []diag.Diagnostic {
	for i, d := range ds {
		ds[i].Message = process.Shorten(c.private.Redact(d.Message, d.Object.Namespace), mostWords)
		ds[i].Hint = process.Shorten(c.private.Redact(d.Hint, d.Object.Namespace), mostWords)
	}
	return diag.Sort(ds)
}

// checkDraft refuses a draft if the files that were added to the artifact contain a private key. It also hides private
// material in the words of the manifest. Other secret values do not matter in added files, which hold addresses of
// endpoints. Names stay, since everybody knows them, and so does the subject, which has names of objects, files and
// sections.
func (c *compilation) checkDraft(r *Result) error {
	var faults []render.Fault
	for _, f := range r.Draft.Files {
		if _, ok := r.Artifact.Origins[f.Path]; ok {
			continue // the artifact was checked before
		}
		for _, found := range c.private.Find(f.Content) {
			if found.Secret.Key == "" { // a tenant may have put the value there on purpose
				faults = append(faults, render.Fault{Message: fmt.Sprintf("%s would hold %s, and snapshots are kept where many can read them", f.Path, found.What)})
			}
		}
	}
	if len(faults) > 0 {
		c.reportTemplates(faults)
		r.Diagnostics = c.redacted(append(r.Diagnostics, c.reported...))
		r.Draft = snapshots.Draft{}
		return ErrTemplates // the configuration says that endpoints are recorded
	}
	p := &r.Draft.Provenance
	p.Trigger, p.Author = c.private.Redact(p.Trigger, ""), c.private.Redact(p.Author, "")
	return nil
}
