package statestore

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
)

// The keys of the Secret. The term and its holder are apart from the state, so that
// people can read them.
const (
	keyTerm     = "term"
	keyHolder   = "holder"
	keyState    = "state.json.gz"
	keyFallback = "fallback.pem"
)

// largest is how many bytes a Secret takes, with some to spare for its other keys.
const largest = 1<<20 - 16<<10

// largestState is how many bytes a state has at most when it is decompressed.
const largestState = 64 << 20

// ErrTaken is returned once another pusher has taken the state.
var ErrTaken = errors.New("another pusher has taken over")

// ErrNone is returned where no pusher ever kept a state.
var ErrNone = errors.New("there is no state")

// Taken is what a pusher gets that takes the state.
type Taken struct {
	State    []byte // nil for none
	Fallback []byte // the fallback certificate, with its key
	Term     int64  // 0 where one pusher has the state for itself, as in a file
}

// Prefix begins the name of a state in a Secret.
const Prefix = "secret:"

// Parse returns the name of the Secret of "secret:NAMESPACE/NAME".
func Parse(text string) (types.NamespacedName, error) {
	rest, ok := strings.CutPrefix(text, Prefix)
	name, err := objectname.Parse(rest)
	if !ok || err != nil {
		return types.NamespacedName{}, fmt.Errorf("%q is not %sNAMESPACE/NAME", text, Prefix)
	}
	return name, nil
}

// termOf returns the term of a Secret. One without anything in it is of term 0: somebody
// made it for a pusher to use. Others are left alone.
func termOf(s *corev1.Secret) (int64, error) {
	text, ok := s.Data[keyTerm]
	if !ok && len(s.Data) == 0 {
		return 0, nil
	}
	term, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || term < 0 {
		return 0, fmt.Errorf("it is no state of a pusher: its key %s is %q", keyTerm, text)
	}
	return term, nil
}

// with returns the Secret in another term, of a holder.
func with(s *corev1.Secret, term int64, holder string) *corev1.Secret {
	next := s.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	next.Data[keyTerm], next.Data[keyHolder] = strconv.AppendInt(nil, term, 10), []byte(holder)
	return next
}

// isOf reports whether the Secret is still in the term of the holder.
func isOf(s *corev1.Secret, term int64, holder string) bool {
	found, err := termOf(s)
	return err == nil && found == term && string(s.Data[keyHolder]) == holder
}

// taken returns what a Secret holds.
func taken(s *corev1.Secret) (Taken, error) {
	term, err := termOf(s)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Fallback: s.Data[keyFallback], Term: term}
	if data, ok := s.Data[keyState]; ok {
		t.State, err = unpack(data)
	}
	return t, err
}

// pack compresses a state: slots of many servers are long and all alike.
func pack(state []byte) ([]byte, error) {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is a valid one
	if _, err := w.Write(state); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if out.Len() > largest {
		return nil, fmt.Errorf("it has %d bytes when compressed, and a Secret takes %d", out.Len(), largest)
	}
	return out.Bytes(), nil
}

func unpack(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", keyState, err)
	}
	state, err := io.ReadAll(io.LimitReader(r, largestState+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress %s: %w", keyState, err)
	case len(state) > largestState:
		return nil, fmt.Errorf("decompress %s: it has more than %d MiB", keyState, largestState>>20)
	}
	return state, nil
}
