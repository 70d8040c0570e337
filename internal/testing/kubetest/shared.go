package kubetest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is the API server that the tests of a package share. It is started when
// the first asks for it.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Server returns the API server.
func (s *Shared) Server(tb testing.TB) *Server {
	tb.Helper()
	s.once.Do(func() { s.server, s.err = New() })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// close ends the API server if there is one.
func (s *Shared) close() error {
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// Main runs the tests of a package in a network namespace of their own, ends the
// servers that they shared, and returns the exit code.
func Main(m *testing.M, servers ...*Shared) int {
	return InNamespace(func() int {
		code := m.Run()
		for _, s := range servers {
			if err := s.close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
		return code
	})
}
