package snapshots

import (
	"crypto/sha256"
	"sync"
)

// checked remembers what was found out about PEM data. Reading a private key
// takes a millisecond, and Bind looks at every certificate each time. What is
// remembered is a function of the data alone, so it is never out of date; no
// data is kept, only its hash.
var checked = verdicts{known: map[[sha256.Size]byte]verdict{}}

// maxVerdicts bounds the memory that is taken, which is about 100 bytes each.
const maxVerdicts = 1 << 16

type verdict struct {
	storable bool
	err      error
}

type verdicts struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

func (v *verdicts) verdict(data []byte) verdict {
	sum := sha256.Sum256(data)
	if found, ok := v.lookup(sum); ok {
		return found
	}
	pair, err := parseKeyPair(data)
	found := verdict{pair.storable, err}
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
