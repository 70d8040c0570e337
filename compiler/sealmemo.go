package compiler

import (
	"strings"

	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// sealMemo remembers what was sealed, for a loop that compiles again and again. It
// holds what its last two compiles used, and nothing in the clear. The nil memo
// remembers nothing.
type sealMemo struct{ before, now map[string][]byte }

func newSealMemo() *sealMemo { return &sealMemo{now: map[string][]byte{}} }

// begin begins a compile.
func (m *sealMemo) begin() {
	if m != nil {
		m.before, m.now = m.now, map[string][]byte{}
	}
}

// seal encrypts a version of a certificate, which is read if it is not remembered.
func (m *sealMemo) seal(to sealing.Recipients, version string, read func() ([]byte, error)) ([]byte, error) {
	if m == nil {
		m = newSealMemo()
	}
	key := strings.Join(append(to.Names(), version), " ")
	for _, known := range []map[string][]byte{m.now, m.before} {
		if sealed, ok := known[key]; ok {
			m.now[key] = sealed
			return sealed, nil
		}
	}
	plain, err := read()
	if err != nil {
		return nil, err
	}
	sealed, err := to.Seal(plain)
	if err == nil {
		m.now[key] = sealed
	}
	return sealed, err
}
