package testscripts

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/internal/testing/spoptest"
	"github.com/hapsnap/hapsnap/internal/testing/tracingtest"
)

// world has everything that a script runs. Only the script's goroutine uses it.
type world struct {
	dir       string // $WORK
	network   *network
	instances []*instance
	realAPI   string // a real Dataplane API to use, "" for the double
	pods      map[string]*pod
	joined    int    // how many instances have joined as pods
	secret    string // the password of the instances, "" for the first one
	waiting   *waiting
	talks     map[string]conversation
	loads     map[string]*load
	programs  map[string]*program
	// certificates are the newest of each Secret.
	certificates map[string]*x509.Certificate
	taken        []net.Listener
	cluster      *kubetest.Server
	proxy        *kubetest.Proxy            // before cluster
	collector    *tracingtest.Collector     // nil: none
	agents       map[string]*spoptest.Agent // by socket
}

func newWorld(dir string) (*world, error) {
	n, err := newNetwork()
	if err != nil {
		return nil, err
	}
	return &world{
		dir: dir, network: n, pods: map[string]*pod{}, waiting: new(waiting), talks: map[string]conversation{}, loads: map[string]*load{}, programs: map[string]*program{},
		certificates: map[string]*x509.Certificate{},
	}, nil
}

// close ends everything that still runs: first clients, then programs, so that they do not see the end of the
// rest.
func (w *world) close() {
	for _, l := range w.loads {
		l.stop()
	}
	for _, talk := range w.talks {
		talk.close()
	}
	for _, p := range w.programs {
		p.kill()
	}
	for _, i := range w.instances {
		i.Close()
	}
	for _, p := range w.pods {
		p.server.Close()
	}
	if w.collector != nil {
		w.collector.Close()
	}
	for _, listener := range w.taken {
		listener.Close()
	}
	if w.proxy != nil {
		w.proxy.Close()
	}
	if w.cluster != nil {
		w.cluster.Close()
	}
	w.network.close()
}

// replaceFile replaces a file as a whole, like an editor or git.
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
