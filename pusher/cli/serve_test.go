package cli

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// log collects what a command logs.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLog() *log { return &log{} }

// Write takes a line.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var serving = regexp.MustCompile(`"serving health and metrics","address":"([^"]+)"`)

// address waits for the line that says where it serves.
func (l *log) address(t *testing.T) string {
	t.Helper()
	var found []string
	eventually(t, func() bool { found = serving.FindStringSubmatch(l.String()); return found != nil })
	return found[1]
}

// get waits for an answer that holds a text.
func get(t *testing.T, url, part string) {
	t.Helper()
	eventually(t, func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusOK && strings.Contains(string(body), part)
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("waited in vain")
		case <-look.C:
		}
	}
}
