package compiler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// quarantined lists the objects that errors were found on, each with the first
// of its errors.
func quarantined(found []diag.Diagnostic) []snapshots.Quarantined {
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

// recordEndpoints makes the file of the endpoints of an artifact.
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

// endpointsOf returns the endpoints that were seen of the Services that the
// artifact has directives for, none included.
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

// certificates are those of the Secrets among the inputs, as they are served.
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

// accompany adds the certificates of a draft as companions, each version once.
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

// seal adds the certificates of a draft to it, encrypted.
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

// sealMemo remembers what was sealed, for a loop that compiles again and again. It
// holds what its last two compiles used, and nothing in the clear. The nil memo
// remembers nothing.
type sealMemo struct{ before, now map[string][]byte }

func newSealMemo() *sealMemo { return &sealMemo{now: map[string][]byte{}} }

// begin begins a compile.
func (m *sealMemo) begin() {
	if m != nil {
		m.before, m.now = m.now, map[string][]byte{}
	}
}

// seal encrypts a version of a certificate, which is read if it is not remembered.
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
