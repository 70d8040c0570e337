package binding

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// renewals decides which certificate is served when a Secret holds another one than before. If the earlier certificate
// is valid and the new one is not, the earlier one stays. It is replaced once the new one is valid, or the earlier one
// is no longer valid.
type renewals struct {
	offered map[snapshots.SecretName]dated // what the Secrets hold
	served  map[snapshots.SecretName]dated
	next    time.Time // when to look again; zero means never
}

// dated is a certificate with the time in which it is valid. The times are zero if they are not known.
type dated struct {
	data     []byte
	from, to time.Time
}

func newDated(data []byte) dated {
	from, to := live.ValidBetween(data)
	return dated{data, from, to}
}

func (d dated) validAt(now time.Time) bool {
	return !now.Before(d.from) && (d.to.IsZero() || !now.After(d.to))
}

// settle returns the certificates to serve now and the next renewals, given the certificates that the Secrets hold. It
// parses only new certificates.
func (r renewals) settle(certificates map[snapshots.SecretName][]byte, now time.Time) (map[snapshots.SecretName][]byte, renewals) {
	next := renewals{offered: make(map[snapshots.SecretName]dated, len(certificates)), served: make(map[snapshots.SecretName]dated, len(certificates))}
	out := make(map[snapshots.SecretName][]byte, len(certificates))
	for name, data := range certificates {
		offered := r.offered[name]
		if !bytes.Equal(offered.data, data) {
			offered = newDated(data)
		}
		serve := offered
		if old, had := r.served[name]; had && !offered.validAt(now) && old.validAt(now) {
			serve = old
		}
		next.offered[name], next.served[name], out[name] = offered, serve, serve.data
		next.lookAgain(now, offered.from)
		if !bytes.Equal(serve.data, data) {
			next.lookAgain(now, serve.to)
		}
	}
	return out, next
}

// lookAgain notes a time in the future at which something changes.
func (r *renewals) lookAgain(now, at time.Time) {
	if at.After(now) && (r.next.IsZero() || at.Before(r.next)) {
		r.next = at
	}
}

// fault returns what is wrong with the validity of a Secret's certificate, or nil. If the served certificate has
// expired, withExpiry reports that instead.
func (r renewals) fault(name snapshots.SecretName, now time.Time) error {
	offered, served := r.offered[name], r.served[name]
	const day = "2006-01-02 15:04 UTC"
	switch kept := !bytes.Equal(offered.data, served.data); {
	case kept && now.Before(offered.from):
		return errors.New("the new certificate is not valid before " + offered.from.UTC().Format(day) + ", and the one before it is served until then")
	case kept:
		return errors.New("the new certificate expired on " + offered.to.UTC().Format(day) + ", and the one before it is served")
	case now.Before(served.from):
		return errors.New("it is not valid before " + served.from.UTC().Format(day) + ", and clients refuse it until then")
	}
	return nil
}

// expiry knows when certificates expire. No event says so, and the pusher has to look again at that time.
type expiry[K comparable] struct {
	certificates map[K][]byte
	ends         map[K]time.Time
	issuers      map[K]string
	next         time.Time // when to look again; zero means never
}

// follow returns the expiry for other certificates. It parses only new ones.
func (x expiry[K]) follow(certificates map[K][]byte) expiry[K] {
	ends, issuers := make(map[K]time.Time, len(certificates)), make(map[K]string, len(certificates))
	for name, data := range certificates {
		if end, known := x.ends[name]; known && bytes.Equal(x.certificates[name], data) {
			ends[name], issuers[name] = end, x.issuers[name]
		} else {
			ends[name], issuers[name] = live.ExpiryAndIssuer(data)
		}
	}
	return expiry[K]{certificates: certificates, ends: ends, issuers: issuers}
}

// at returns the certificates that have expired by a time. It also returns the expiry with the time at which the next
// one expires.
func (x expiry[K]) at(now time.Time) (map[K]bool, expiry[K]) {
	out := map[K]bool{}
	x.next = time.Time{}
	for name, end := range x.ends {
		switch {
		case end.IsZero():
		case now.After(end):
			out[name] = true
		case x.next.IsZero() || end.Before(x.next):
			x.next = end
		}
	}
	return out, x
}

// Expire takes expired certificates out of service, and puts in those that were renewed or have become
// valid.
func (b *Bindings) Expire(now time.Time) {
	if due := b.renewals.next; !due.IsZero() && !now.Before(due) {
		again := b.live
		again.Certificates = b.offered
		b.setLive(again, now)
	}
	if passed(b.expiry.next, now) || passed(b.versionExpiry.next, now) {
		b.lookAtExpiry(now)
	}
}

// Expiries returns when the served certificates expire, and a number that changes whenever these times do. A time is
// zero if it is not known. The map does not change after it is returned.
func (b *Bindings) Expiries() (ends map[snapshots.SecretName]time.Time, version int) {
	return b.expiry.ends, b.expiries
}

// Issuers returns who issued the served certificates. The map does not change after it is returned.
func (b *Bindings) Issuers() map[snapshots.SecretName]string { return b.expiry.issuers }

func passed(at, now time.Time) bool { return !at.IsZero() && now.After(at) }

func (b *Bindings) lookAtExpiry(now time.Time) {
	var expired map[snapshots.SecretName]bool
	var versions map[string]bool
	expired, b.expiry = b.expiry.at(now)
	versions, b.versionExpiry = b.versionExpiry.at(now)
	if !maps.Equal(expired, b.live.Expired) || !maps.Equal(versions, b.live.ExpiredVersions) {
		b.live.Expired, b.live.ExpiredVersions = expired, versions
		b.shapes++
	}
}

// withExpiry adds a fault to those of a need if its certificate has expired or is not valid yet. The ends are those of
// [Bindings.expiredVersions].
func (b *Bindings) withExpiry(need bind.Need, faults []error, ends map[snapshots.SecretName]time.Time, now time.Time) []error {
	if need.Use != snapshots.UseCertificate {
		return faults
	}
	if fault := b.renewals.fault(need.Secret, now); fault != nil {
		faults = append(slices.Clone(faults), fault)
	}
	end := ends[need.Secret]
	if b.live.Expired[need.Secret] {
		end = b.expiry.ends[need.Secret]
	}
	if end.IsZero() {
		return faults
	}
	return append(faults, errors.New("it expired on "+end.UTC().Format("2006-01-02")))
}

// versions knows which version of a certificate each Secret holds. It parses only new certificates.
type versions struct {
	certificates map[snapshots.SecretName][]byte
	of           map[snapshots.SecretName]string
}

// follow returns the versions for other certificates.
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

// addVersions takes certificates that a snapshot carries.
func (b *Bindings) addVersions(found map[string][]byte, now time.Time) {
	next := maps.Clone(b.live.Versions)
	if next == nil {
		next = map[string][]byte{}
	}
	maps.Copy(next, found)
	b.keepVersions(next, now)
}

// gatherVersions takes from the Secrets the versions of certificates that snapshots name, and drops those that no
// snapshot in use names. A named version stays even if the Secret no longer has it.
func (b *Bindings) gatherVersions(now time.Time) {
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

// keepVersions replaces the known versions.
func (b *Bindings) keepVersions(next map[string][]byte, now time.Time) {
	if maps.EqualFunc(b.live.Versions, next, slices.Equal[[]byte]) {
		return
	}
	b.live.Versions = next
	b.shapes++
	b.versionExpiry = b.versionExpiry.follow(next)
	b.lookAtExpiry(now)
}

// absent returns the references of a snapshot to versions that are not known.
func (b *Bindings) absent(id snapshots.ID) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(b.prepared[id].versions), func(ref snapshots.CertificateRef) bool {
		return len(b.live.Versions[ref.Version]) > 0
	})
}

// Complete reports whether all certificates that a snapshot names by version are known. Only then can an instance
// without them get the snapshot.
func (b *Bindings) Complete(id snapshots.ID) bool { return len(b.absent(id)) == 0 }

// unopened returns the snapshots that carry certificates which are not decrypted yet.
func (b *Bindings) unopened() []snapshots.ID {
	var out []snapshots.ID
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if slices.ContainsFunc(b.absent(id), func(ref snapshots.CertificateRef) bool { return ref.Mode != snapshots.ModeExact }) {
			out = append(out, id)
		}
	}
	return out
}

// OtherVersions returns an error for each Secret that does not hold the version that a snapshot names. The error says
// what follows from that.
func (b *Bindings) OtherVersions() []error {
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

// expiredVersions returns when certificates expired that snapshots in use carry or name by version, by their Secrets.
func (b *Bindings) expiredVersions() map[snapshots.SecretName]time.Time {
	if len(b.live.ExpiredVersions) == 0 {
		return nil
	}
	out := map[snapshots.SecretName]time.Time{}
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		for _, ref := range b.prepared[id].versions {
			if _, known := out[ref.Secret]; !known && b.live.ExpiredVersions[ref.Version] {
				out[ref.Secret] = b.versionExpiry.ends[ref.Version]
			}
		}
	}
	return out
}
