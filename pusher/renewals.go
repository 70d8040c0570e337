package pusher

import (
	"bytes"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// renewals says which certificate of a Secret is served, where a Secret holds another than
// before: one that is not valid now does not take the place of one that is. The Secret's is
// taken as soon as it is valid, or the one before is not any more.
type renewals struct {
	offered map[snapshots.SecretName]dated // what the Secrets hold
	served  map[snapshots.SecretName]dated
	next    time.Time // when to look again; zero is never
}

// dated is a certificate and from when to when it is valid; zero times where that cannot
// be told.
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

// settle returns the certificates to serve at a time, given those that the Secrets hold, and
// what is known with that. Only those that are new are read.
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

// lookAgain notes that something changes at a time, if that is to come.
func (r *renewals) lookAgain(now, at time.Time) {
	if at.After(now) && (r.next.IsZero() || at.Before(r.next)) {
		r.next = at
	}
}

// fault says what is wrong with when the certificate of a Secret is valid, nil for nothing.
// That it is expired is told elsewhere.
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
