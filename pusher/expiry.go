package pusher

import (
	"bytes"
	"errors"
	"maps"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// expiry knows when certificates expire, so that this is noticed at the time,
// though nothing changes then.
type expiry struct {
	certificates map[snapshots.SecretName][]byte
	ends         map[snapshots.SecretName]time.Time
	next         time.Time // when to look again; zero is never
}

// follow returns what is known of other certificates. Only those that are new
// are read.
func (x expiry) follow(certificates map[snapshots.SecretName][]byte) expiry {
	ends := make(map[snapshots.SecretName]time.Time, len(certificates))
	for name, data := range certificates {
		if end, known := x.ends[name]; known && bytes.Equal(x.certificates[name], data) {
			ends[name] = end
		} else {
			ends[name] = live.ExpiresAt(data)
		}
	}
	return expiry{certificates: certificates, ends: ends}
}

// at returns the certificates that are expired at a time, and what is known
// with the time when there will be more of them.
func (x expiry) at(now time.Time) (map[snapshots.SecretName]bool, expiry) {
	out := map[snapshots.SecretName]bool{}
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
// were renewed.
func (b *bindings) expire(now time.Time) {
	if b.expiry.next.IsZero() || !now.After(b.expiry.next) {
		return
	}
	b.lookAtExpiry(now)
}

func (b *bindings) lookAtExpiry(now time.Time) {
	var expired map[snapshots.SecretName]bool
	expired, b.expiry = b.expiry.at(now)
	if !maps.Equal(expired, b.live.Expired) {
		b.live.Expired = expired
		b.shapes++
	}
}

// withExpiry adds to the faults of a need that its certificate is expired.
func (b *bindings) withExpiry(need snapshots.Need, faults []error) []error {
	if need.Use != snapshots.UseCertificate || !b.live.Expired[need.Secret] {
		return faults
	}
	return append(faults, errors.New("it expired on "+b.expiry.ends[need.Secret].UTC().Format("2006-01-02")))
}
