package pusher

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// versions knows which version of a certificate each Secret holds. Only those that
// are new are read.
type versions struct {
	certificates map[snapshots.SecretName][]byte
	of           map[snapshots.SecretName]string
}

// follow returns what is known of other certificates.
func (v versions) follow(certificates map[snapshots.SecretName][]byte) versions {
	of := make(map[snapshots.SecretName]string, len(certificates))
	for name, data := range certificates {
		if version, known := v.of[name]; known && bytes.Equal(v.certificates[name], data) {
			of[name] = version
		} else if version, err := pem.Version(data); err == nil {
			of[name] = version
		}
	}
	return versions{certificates, of}
}

// versionsOf returns the references of a snapshot to versions that there are.
func versionsOf(s snapshots.Snapshot) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(s.Manifest.Spec.Certificates), func(ref snapshots.CertificateRef) bool {
		return ref.Version == ""
	})
}

// addVersions takes certificates that snapshots carry.
func (b *bindings) addVersions(found map[string][]byte, now time.Time) {
	next := maps.Clone(b.live.Versions)
	if next == nil {
		next = map[string][]byte{}
	}
	maps.Copy(next, found)
	b.keepVersions(next, now)
}

// gatherVersions takes from the Secrets the versions that snapshots name exactly, and
// drops those that no snapshot in use names any more. One that is no longer in its
// Secret stays for as long as it is named.
func (b *bindings) gatherVersions(now time.Time) {
	next := map[string][]byte{}
	for _, p := range b.prepared {
		for _, ref := range p.versions {
			if ref.Mode == snapshots.ModeExact {
				b.secrets = b.secrets.follow(b.offered)
			}
			if ref.Mode == snapshots.ModeExact && b.secrets.of[ref.Secret] == ref.Version {
				next[ref.Version] = b.offered[ref.Secret]
			} else if known, ok := b.live.Versions[ref.Version]; ok {
				next[ref.Version] = known
			}
		}
	}
	b.keepVersions(next, now)
}

// keepVersions makes these the versions at hand.
func (b *bindings) keepVersions(next map[string][]byte, now time.Time) {
	if maps.EqualFunc(b.live.Versions, next, slices.Equal[[]byte]) {
		return
	}
	b.live.Versions = next
	b.shapes++
	b.versionExpiry = b.versionExpiry.follow(next)
	b.lookAtExpiry(now)
}

// absent returns the references of a snapshot to versions that are not at hand.
func (b *bindings) absent(id snapshots.ID) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(b.prepared[id].versions), func(ref snapshots.CertificateRef) bool {
		return len(b.live.Versions[ref.Version]) > 0
	})
}

// complete reports whether all certificates are at hand that a snapshot names by
// version: it can be given to an instance that does not have them.
func (b *bindings) complete(id snapshots.ID) bool { return len(b.absent(id)) == 0 }

// unopened returns the snapshots that carry certificates which are not at hand.
func (b *bindings) unopened() []snapshots.ID {
	var out []snapshots.ID
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if slices.ContainsFunc(b.absent(id), func(ref snapshots.CertificateRef) bool { return ref.Mode != snapshots.ModeExact }) {
			out = append(out, id)
		}
	}
	return out
}

// otherVersions says which Secrets do not hold the version that a snapshot names
// exactly, and what comes of it.
func (b *bindings) otherVersions() []error {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		for _, ref := range b.prepared[id].versions {
			if ref.Mode != snapshots.ModeExact || b.secrets.of[ref.Secret] == ref.Version {
				continue
			}
			holds := "there is no usable certificate in Secret " + ref.Secret.String()
			if other := b.secrets.of[ref.Secret]; other != "" {
				holds = fmt.Sprintf("Secret %s holds version %.10s", ref.Secret, other)
			}
			comes := "it is given to no instance"
			if len(b.live.Versions[ref.Version]) > 0 {
				comes = "that one, which is still known, is served on"
			}
			errs = append(errs, fmt.Errorf("%s, and %s names version %.10s: %s", holds, id, ref.Version, comes))
		}
	}
	return errs
}

// expiredVersion returns when the certificate of a Secret expired that snapshots in use
// carry or name; zero if it did not.
func (b *bindings) expiredVersion(secret snapshots.SecretName) time.Time {
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		for _, ref := range b.prepared[id].versions {
			if ref.Secret == secret && b.live.ExpiredVersions[ref.Version] {
				return b.versionExpiry.ends[ref.Version]
			}
		}
	}
	return time.Time{}
}

// errAbsent keeps a snapshot from an instance.
var errAbsent = errors.New("a certificate that it names is not at hand")
