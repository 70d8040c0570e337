package bind

import (
	"bytes"
	"crypto/sha256"
	"sync"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// What was found out about PEM data is remembered. Reading a private key takes a
// millisecond, and Bind looks at every certificate each time. What is
// remembered is a function of the data alone, so it is never out of date; no
// data is kept, only its hash.
var (
	checked            = verdicts{judge: judgeKeyPair, known: map[[sha256.Size]byte]verdict{}}
	checkedAuthorities = verdicts{judge: judgeAuthorities, known: map[[sha256.Size]byte]verdict{}}
)

// maxVerdicts bounds the memory that is taken, which is about 100 bytes each.
const maxVerdicts = 1 << 16

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

type verdicts struct {
	judge func(data []byte) verdict
	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

func (v *verdicts) verdict(data []byte) verdict {
	sum := sha256.Sum256(data)
	if found, ok := v.lookup(sum); ok {
		return found
	}
	found := v.judge(data)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxVerdicts {
		clear(v.known)
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

// checkAuthorities says why PEM data is not what ParseAuthorities returns.
func checkAuthorities(data []byte) error {
	if len(data) == 0 {
		return pem.ErrNoCertificate
	}
	return checkedAuthorities.verdict(data).err
}
