package pusher

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
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

// errNoIdentity is for who has nothing to open sealed certificates with.
var errNoIdentity = errors.New("no file of identities is named with --age-identity")

// decryptions are the snapshots whose certificates are being opened, or could not be.
type decryptions struct {
	asked  map[snapshots.ID]bool
	failed map[snapshots.ID]missing
}

func newDecryptions() *decryptions {
	return &decryptions{asked: map[snapshots.ID]bool{}, failed: map[snapshots.ID]missing{}}
}

// due reports whether a snapshot is to be opened now, and notes that it is.
func (o *decryptions) due(id snapshots.ID, now time.Time) bool {
	if m, failed := o.failed[id]; o.asked[id] || (failed && now.Sub(m.at) < fetchRetry) {
		return false
	}
	o.asked[id] = true
	return true
}

// take notes how opening a snapshot ended.
func (o *decryptions) take(id snapshots.ID, err error, now time.Time) {
	delete(o.asked, id)
	delete(o.failed, id)
	if err != nil {
		o.failed[id] = missing{err, now}
	}
}

// openSnapshots sees to it that the certificates are at hand that the snapshots in use
// carry. What is opened stays in memory.
func (e *engine) openSnapshots(now time.Time) {
	for _, id := range e.bindings.unopened() {
		if !e.decryptions.due(id, now) {
			continue
		}
		e.begin(openCertificates{e.Store, e.Identity, e.bindings.prepared[id].snapshot})
	}
	maps.DeleteFunc(e.decryptions.failed, func(id snapshots.ID, _ missing) bool {
		return e.bindings.complete(id) || e.bindings.prepared[id].snapshot.ID() != id
	})
	e.troubleWithVersions(now)
}

// companioned is a store that keeps certificates beside snapshots.
type companioned interface {
	Companions(ctx context.Context, id snapshots.ID) (map[string][]byte, error)
}

// companions returns the certificates beside a snapshot, by version.
func companions(ctx context.Context, store Store, id snapshots.ID) (map[string][]byte, error) {
	keeps, ok := store.(companioned)
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, snapshots.ErrNoCompanions)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return keeps.Companions(ctx, id)
}

// troubleWithVersions tells which certificates are not at hand, and why, and which
// were renewed where a snapshot names what they were before.
func (e *engine) troubleWithVersions(now time.Time) {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(e.decryptions.failed), snapshots.ID.Compare) {
		err := e.decryptions.failed[id].err
		if e.Identity == "" && errors.Is(err, sealing.ErrNotForUs) {
			err = fmt.Errorf("%w: %w", err, errNoIdentity)
		}
		errs = append(errs, err)
	}
	if e.liveRead {
		errs = append(errs, e.bindings.otherVersions()...)
	}
	e.trouble("certificates", errors.Join(errs...), now)
}

// fallbackCertificate returns the certificate that is served where no other fits:
// self-signed, made once and kept in a file that only its owner can read, so that
// all instances have the same, today and tomorrow.
func fallbackCertificate(file string, fallback func() ([]byte, error)) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		if _, err := pem.CheckKeyPair(data); err != nil {
			return nil, fmt.Errorf("read fallback certificate %s: %w", file, err)
		}
		return data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read fallback certificate: %w", err)
	}
	if data, err = fallback(); err != nil {
		return nil, err
	}
	if err := replaceFile(file, data); err != nil {
		return nil, fmt.Errorf("keep fallback certificate: %w", err)
	}
	return data, nil
}

// newFallback returns what makes the fallback certificate.
func newFallback(now time.Time) func() ([]byte, error) {
	return func() ([]byte, error) {
		data, err := selfSigned(now)
		if err != nil {
			return nil, fmt.Errorf("make fallback certificate: %w", err)
		}
		return data, nil
	}
}

// selfSigned returns a certificate for ten years and its key.
func selfSigned(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "hapsnap fallback certificate"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, block := range []*stdpem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := stdpem.Encode(&out, block); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
