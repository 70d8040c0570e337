package admission

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds a review in bytes. It holds an object twice, of at most the 3
	// MiB that an API server takes.
	maxBody = 8 << 20
	// bodyTime is how long the body of a review may take to arrive.
	bodyTime = 5 * time.Second
	// freeBody is what of each body counts for nothing; maxBodies bounds the rest of all
	// that are being read, or have been and wait.
	freeBody, maxBodies = 64 << 10, 64 << 20
	// maxReviews bounds the reviews that are judged at a time, and maxOfNamespace those of
	// one namespace.
	maxReviews, maxOfNamespace = 512, 128
)

var (
	errTooLarge = errors.New("the review is too large")
	errTooMany  = errors.New("too many large reviews at a time")
)

// bodies bounds what bodies of requests take of memory and of time. Reading one waits for
// no other one.
type bodies struct {
	held     atomic.Int64
	patience time.Duration // zero: bodyTime
}

// read reads a body whole. With an error it returns the status of the answer.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, int, error) {
	// A server that cannot set it (of a test) has no slow clients either.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(cmp.Or(b.patience, bodyTime)))
	var out bytes.Buffer
	var counted int64
	defer func() { b.held.Add(-counted) }()
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(chunk)
		out.Write(chunk[:n])
		if out.Len() > maxBody {
			return nil, http.StatusRequestEntityTooLarge, errTooLarge
		}
		if over := int64(out.Len()) - freeBody - counted; over > 0 {
			counted += over
			if b.held.Add(over) > maxBodies {
				return nil, http.StatusServiceUnavailable, errTooMany
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			// What is read from now on is whether the client is still there.
			_ = connection.SetReadDeadline(time.Time{})
			return out.Bytes(), 0, nil
		case err != nil:
			return nil, http.StatusBadRequest, err
		}
	}
}

// places are those of the reviews that are judged. Each namespace has only some, so that
// none keeps the others out.
type places struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by namespace
}

func (p *places) take(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxReviews || p.of[namespace] >= maxOfNamespace {
		return false
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.all++
	p.of[namespace]++
	return true
}

func (p *places) leave(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[namespace]--; p.of[namespace] == 0 {
		delete(p.of, namespace)
	}
}
