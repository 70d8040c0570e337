package pusher

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// expiry knows when certificates expire, so that this is noticed at the time,
// though nothing changes then.
type expiry[K comparable] struct {
	certificates map[K][]byte
	ends         map[K]time.Time
	next         time.Time // when to look again; zero is never
}

// follow returns what is known of other certificates. Only those that are new
// are read.
func (x expiry[K]) follow(certificates map[K][]byte) expiry[K] {
	ends := make(map[K]time.Time, len(certificates))
	for name, data := range certificates {
		if end, known := x.ends[name]; known && bytes.Equal(x.certificates[name], data) {
			ends[name] = end
		} else {
			ends[name] = live.ExpiresAt(data)
		}
	}
	return expiry[K]{certificates: certificates, ends: ends}
}

// at returns the certificates that are expired at a time, and what is known
// with the time when there will be more of them.
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

// expire takes expired certificates out of service, and puts those in again that
// were renewed, or are valid from now on.
func (b *bindings) expire(now time.Time) {
	if due := b.renewals.next; !due.IsZero() && !now.Before(due) {
		again := b.live
		again.Certificates = b.offered
		b.setLive(again, now)
	}
	if passed(b.expiry.next, now) || passed(b.versionExpiry.next, now) {
		b.lookAtExpiry(now)
	}
}

func passed(at, now time.Time) bool { return !at.IsZero() && now.After(at) }

func (b *bindings) lookAtExpiry(now time.Time) {
	var expired map[snapshots.SecretName]bool
	var versions map[string]bool
	expired, b.expiry = b.expiry.at(now)
	versions, b.versionExpiry = b.versionExpiry.at(now)
	if !maps.Equal(expired, b.live.Expired) || !maps.Equal(versions, b.live.ExpiredVersions) {
		b.live.Expired, b.live.ExpiredVersions = expired, versions
		b.shapes++
	}
}

// withExpiry adds to the faults of a need that its certificate is expired, or not valid
// yet.
func (b *bindings) withExpiry(need bind.Need, faults []error, now time.Time) []error {
	if fault := b.renewals.fault(need.Secret, now); fault != nil && need.Use == snapshots.UseCertificate {
		faults = append(slices.Clone(faults), fault)
	}
	end := b.expiredVersion(need.Secret)
	if b.live.Expired[need.Secret] {
		end = b.expiry.ends[need.Secret]
	}
	if need.Use != snapshots.UseCertificate || end.IsZero() {
		return faults
	}
	return append(faults, errors.New("it expired on "+end.UTC().Format("2006-01-02")))
}
