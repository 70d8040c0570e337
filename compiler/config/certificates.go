package config

import (
	"errors"
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// Certificates says which certificates a snapshot is served with. Everything else in
// Secrets (authorities, users and values) is always taken as it is when a snapshot is
// pushed.
type Certificates struct {
	// Mode says where the certificates come from.
	//
	// With reference, a snapshot names Secrets, and HAProxy serves the certificates that
	// they hold at the time. A renewed certificate makes no new snapshot, and needs no
	// reload.
	//
	// With the other modes HAProxy serves the certificates that the compiler saw. A renewed
	// certificate makes a new snapshot, with a rollout. With exact, the pusher takes the
	// certificates from the Secrets, and waits while these hold others. With sealed, they
	// are in the snapshot, encrypted, and the pusher needs none of the Secrets. With
	// companion, they are in Secrets beside the snapshot, which only a store in a cluster
	// can have.
	Mode CertificateMode `json:"mode"`
	// Recipients are the age recipients that can decrypt sealed certificates, such as
	// age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9. List the public key
	// of each pusher, and of everybody else who may decrypt them. When the list changes,
	// everything is sealed again, into a new snapshot.
	Recipients []string `json:"recipients"`
}

// CertificateMode is one of the modes.
type CertificateMode string

// The modes.
const (
	ReferenceCertificates CertificateMode = "reference"
	ExactCertificates     CertificateMode = "exact"
	SealedCertificates    CertificateMode = "sealed"
	CompanionCertificates CertificateMode = "companion"
)

var certificateModes = map[CertificateMode]snapshots.CertificateMode{
	ReferenceCertificates: snapshots.ModeReference,
	ExactCertificates:     snapshots.ModeExact,
	SealedCertificates:    snapshots.ModeSealed,
	CompanionCertificates: snapshots.ModeCompanion,
}

// RefMode returns the mode as references have it.
func (c Certificates) RefMode() snapshots.CertificateMode { return certificateModes[c.Mode] }

func (c Certificates) check(f field.Errors) {
	if _, known := certificateModes[c.Mode]; !known {
		f.At("mode").Add(fmt.Sprintf("%q is none of reference, exact, sealed and companion", string(c.Mode)), "use one of them")
	}
	recipients := f.At("recipients")
	for i, text := range c.Recipients {
		if _, err := sealing.ParseRecipient(text); err != nil { // it may be an identity, so the message does not repeat it
			recipients.Element(i).Add(err.Error(), "use the public key that age-keygen printed, which begins with age1")
		}
	}
	if recipients.Any() {
		return
	}
	switch _, err := sealing.NewRecipients(c.Recipients); {
	case c.Mode == SealedCertificates && errors.Is(err, sealing.ErrNoRecipient):
		recipients.Add("no recipient is named, so certificates cannot be sealed", "make a key with age-keygen -o identity.txt, and name its public key here")
	case c.Mode != SealedCertificates && len(c.Recipients) > 0:
		recipients.Add("are never used: certificates are not sealed", "set mode: sealed, or leave them out")
	case err != nil && len(c.Recipients) > 0:
		recipients.Add(err.Error(), "use one kind")
	}
}
