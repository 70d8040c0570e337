package testscripts

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// world is everything that one script runs. Only the script's goroutine uses it.
type world struct {
	dir       string // $WORK
	network   *network
	instances []*instance
	pods      map[string]*pod
	programs  map[string]*program
	// certificates are the newest of each Secret.
	certificates map[string]*x509.Certificate
	taken        []net.Listener
}

func newWorld(dir string) (*world, error) {
	n, err := newNetwork()
	if err != nil {
		return nil, err
	}
	return &world{
		dir: dir, network: n, pods: map[string]*pod{}, programs: map[string]*program{},
		certificates: map[string]*x509.Certificate{},
	}, nil
}

// close ends all that still runs. Programs first, so that they do not see the
// world end.
func (w *world) close() {
	for _, p := range w.programs {
		p.kill()
	}
	for _, i := range w.instances {
		i.Close()
	}
	for _, p := range w.pods {
		p.server.Close()
	}
	for _, listener := range w.taken {
		listener.Close()
	}
	w.network.close()
}

// pod is a server that answers every request with its name.
type pod struct {
	address string
	server  *http.Server
}

// pod returns the pod of a name, which it starts if there is none yet.
func (w *world) pod(name string) (*pod, error) {
	if p, ok := w.pods[name]; ok {
		return p, nil
	}
	ip := w.network.ip(podHost + len(w.pods))
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, w.network.Port))
	if err != nil {
		return nil, fmt.Errorf("start pod %s: %w", name, err)
	}
	p := &pod{address: ip, server: &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }),
	}}
	go p.server.Serve(listener) //nolint:errcheck // it ends when the world does
	w.pods[name] = p
	return p, nil
}

// replaceFile writes a file whole, as an editor or git would.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// logs returns the end of each program's log, to explain a failure.
func (w *world) logs() string {
	var b strings.Builder
	for name, p := range w.programs {
		lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
		fmt.Fprintf(&b, "\n--- the end of what %s logged\n%s", name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
	return b.String()
}
