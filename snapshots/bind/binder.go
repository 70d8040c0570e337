package bind

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Binder binds snapshots, and remembers which certificates HAProxy can load. Reading a
// private key takes a millisecond, and [Bind] looks at every certificate each time.
//
// What it remembers is a function of the PEM data alone, so it is never out of date, and
// every Binder binds to the same bytes. It keeps hashes and no data. The zero value is
// ready. It is for any number of goroutines, and must not be copied.
type Binder struct {
	pairs, authorities verdicts
}

// Bind is [Bind] for who binds more than once.
func (b *Binder) Bind(s snapshots.Snapshot, in Inputs) (Bound, error) {
	if !s.Sealed() {
		return Bound{}, fmt.Errorf("bind: the snapshot is not sealed")
	}
	bound, err := b.bind(s, in)
	if err != nil {
		return Bound{}, fmt.Errorf("bind %s: %w", s.ID(), err)
	}
	return bound, nil
}

// certificateKind says which storage takes the PEM, or why it cannot be served.
// The Dataplane API's storage for certificates refuses Ed25519 keys, so those
// are general files: their name has a hash, and a new one needs a reload.
func (b *Binder) certificateKind(data []byte) (FileKind, error) {
	if len(data) == 0 {
		return "", pem.ErrNoCertificate
	}
	v := b.pairs.of(data, judgeKeyPair)
	if v.err == nil && !v.storable {
		return GeneralFile, nil
	}
	return CertificateFile, v.err
}

// checkAuthorities says why PEM data is not what [pem.ParseAuthorities] returns.
func (b *Binder) checkAuthorities(data []byte) error {
	if len(data) == 0 {
		return pem.ErrNoCertificate
	}
	return b.authorities.of(data, judgeAuthorities).err
}

// verdict says whether HAProxy can load PEM data, and whether the certificate storage of
// the Dataplane API takes it.
type verdict struct {
	storable bool
	err      error
}

func judgeKeyPair(data []byte) verdict {
	pair, err := pem.ParseKeyPair(data)
	return verdict{pair.Storable, err}
}

func judgeAuthorities(data []byte) verdict {
	plain, err := pem.ParseAuthorities(data)
	if err == nil && !bytes.Equal(plain, data) {
		err = pem.ErrBadCertificate // it may hold a key
	}
	return verdict{err: err}
}

// maxVerdicts bounds the memory that is taken, which is about 100 bytes each.
const maxVerdicts = 1 << 16

// verdicts remembers the verdicts of one judge, by the hash of what was judged.
type verdicts struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

func (v *verdicts) of(data []byte, judge func([]byte) verdict) verdict {
	sum := sha256.Sum256(data)
	if found, ok := v.lookup(sum); ok {
		return found
	}
	found := judge(data)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxVerdicts {
		v.known = map[[sha256.Size]byte]verdict{}
	}
	v.known[sum] = found
	return found
}

func (v *verdicts) lookup(sum [sha256.Size]byte) (verdict, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.known[sum]
	return found, ok
}
