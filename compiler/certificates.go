package compiler

import (
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// versioned returns references to the versions of certificates that were seen. Where
// none was that can be served, the version is empty: that too is for the snapshot to
// say, not for whatever is there when it is pushed.
func versioned(refs []snapshots.CertificateRef, mode snapshots.CertificateMode) []snapshots.CertificateRef {
	refs = slices.Clone(refs)
	for i, ref := range refs {
		if ref.Use != snapshots.UseCertificate || ref.Secret == (snapshots.SecretName{}) {
			continue
		}
		refs[i].Mode = mode
		if ref.Observed != nil && mode != snapshots.ModeReference {
			refs[i].Version = ref.Observed.Version
		}
	}
	return refs
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

// of returns the certificate of a Secret that was seen to hold one.
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
