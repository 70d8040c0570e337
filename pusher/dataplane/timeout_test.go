package dataplane

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestReadsAreNotWaitedForLong(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.readTimeout = 50 * time.Millisecond
	began := time.Now()
	_, err = c.RuntimeInfo(t.Context())
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("a question without an answer: %v, want %v", err, ErrUnavailable)
	}
	if took := time.Since(began); took > readTimeout {
		t.Errorf("it was waited for %s", took)
	}
}
