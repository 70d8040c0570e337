package routingtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// arranged is an edge whose servers can be looked after as a pusher does.
type arranged struct {
	edge
	socket  string
	servers []bind.Server
}

// startArranged is start for slots that are changed before they are bound, and
// with a runtime socket.
func startArranged(t *testing.T, yaml string, arrange func([]bind.Slot) []bind.Slot, configure ...func(*config.Config)) arranged {
	t.Helper()
	cfg := config.Default()
	ip := ownAddress()
	cfg.Bind.Addresses = []string{ip}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port = freePort(t, ip), 0, 0
	cfg.MaxConn = 100
	for _, f := range configure {
		f(&cfg)
	}
	result, objects := compile(t, yaml, cfg)
	table := slots(t, result.Draft, objects)
	for key, group := range table {
		table[key] = arrange(group)
	}
	dir := t.TempDir()
	bound := bindSlots(t, dir, result.Draft, objects, table)
	socket := filepath.Join(dir, "socket")
	bound.Config = bytes.Replace(bound.Config, []byte("global\n"), []byte("global\n    stats socket "+socket+" level admin\n"), 1)
	write(t, dir, bound)
	a := arranged{edge{http: fmt.Sprint(ip, ":", cfg.HTTP.Port), result: result}, socket, bound.Servers}
	run(t, dir, a.http)
	await(t, func() error { // the socket gets its name after the port is open
		_, err := os.Stat(socket)
		return err
	})
	for _, s := range bound.Servers {
		if s.State == bind.SlotDrain {
			a.runtime(t, fmt.Sprintf("set server %s/%s state drain", s.Backend, s.Name))
		}
	}
	return a
}

// runtime gives HAProxy a command.
func (a arranged) runtime(t *testing.T, command string) string {
	t.Helper()
	var c net.Conn
	await(t, func() (err error) { // it may come after the ports
		c, err = net.Dial("unix", a.socket)
		return err
	})
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(c, command); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(answer))
	if strings.Contains(text, "No such") || strings.Contains(text, "nvalid") || strings.Contains(text, "nknown") {
		t.Fatalf("%s: %s", command, text)
	}
	return text
}

// server returns the server at a port, as the runtime API calls it; port 1 is
// that of a spare slot.
func (a arranged) server(t *testing.T, port int) string {
	t.Helper()
	for _, s := range a.servers {
		if s.Port == port {
			return s.Backend + "/" + s.Name
		}
	}
	t.Fatalf("no server at port %d", port)
	return ""
}
