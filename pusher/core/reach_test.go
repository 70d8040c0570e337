package core

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// saidOf returns the log lines of a machine since the last call.
func saidOf(m *Machine) string {
	var lines []string
	for _, fact := range m.Facts() {
		lines = append(lines, fact.String())
	}
	return strings.Join(lines, "\n")
}

// Each change of an instance's reachability is logged once, with the reason. A wrong password is not the same
// as an unreachable instance. If no instance of a fleet is reachable, that is a trouble.
func TestReachIsTold(t *testing.T) {
	t.Parallel()
	m, now := newMachine(State{}, noon), noon
	i := &instanceState{Instance: fleet.Instance{Name: "edge-1", URL: "https://10.0.0.1:5555"}}
	m.instances["edge-1"] = i
	denied := &dataplane.Error{Op: "get info", Status: 401, Message: "unauthorized"}
	for n, look := range []struct {
		err     error
		want    string // "": no log line
		trouble bool
	}{
		{errors.New("connection refused"), "instance cannot be reached", true},
		{errors.New("no route to host"), "", true},
		{denied, "wrong credentials", true},
		{denied, "", true},
		{nil, "instance answers again", false},
		{nil, "", false},
		{errors.New("tls: certificate has expired or is not yet valid"), "has to be renewed", true},
		{nil, "instance answers again", false},
		{fmt.Errorf("get runtime info: dial unix master.sock: connect: connection refused: %w", dataplane.ErrRuntime), "see whether HAProxy runs", true},
	} {
		now = now.Add(time.Second)
		OfInstance{instance.Probed{About: instance.About{Ref: i.ref()}, Asked: now, Err: look.err}}.apply(m, now)
		m.reporting.troubleWithReach(now)
		said := saidOf(m)
		about := strings.Contains(said, "edge-1")
		if look.want != "" && !strings.Contains(said, look.want) || look.want == "" && strings.Contains(said, "instance=edge-1") || look.want != "" && !about {
			t.Errorf("look %d, %v: said %q, want %q", n, look.err, said, look.want)
		}
		if _, is := m.troubles[report.AboutReach]; is != look.trouble {
			t.Errorf("look %d: troubles %v", n, m.troubles)
		}
	}
}

// A store without a snapshot is reported once a minute until it has one.
func TestEmptyStoreIsTold(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.viewRead, m.decision.Because = true, channel.BecauseEmpty
	told := func(after time.Duration) bool {
		m.reporting.sayEmpty(noon.Add(after))
		return strings.Contains(saidOf(m), "there is no snapshot in the store")
	}
	for n, look := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {time.Second, false}, {59 * time.Second, false}, {time.Minute, true}, {90 * time.Second, false}} {
		if got := told(look.after); got != look.want {
			t.Errorf("look %d: told %t", n, got)
		}
	}
	m.decision.Because = channel.BecauseNewest
	if told(10 * time.Minute) {
		t.Error("told although there is a snapshot")
	}
}

// Two names of one instance are found by the address of the connections and by the worker. Instances behind one proxy are not taken for one.
func TestTwoNamesOfOneInstance(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddrPort("10.0.0.1:5555")
	for _, c := range []struct {
		name   string
		peer   netip.AddrPort
		pid    int
		uptime time.Duration
		twins  bool
	}{
		{"the same worker", peer, 7, 59 * time.Second, true},
		{"another address", netip.MustParseAddrPort("10.0.0.2:5555"), 7, time.Minute, false},
		{"another worker", peer, 8, time.Minute, false},
		{"another worker with the same number", peer, 7, time.Hour, false},
	} {
		m := newMachine(State{}, noon)
		for n, name := range []string{"edge-1", "edge-2"} {
			i := &instanceState{Instance: fleet.Instance{Name: name, URL: "https://" + name + ":5555"}}
			m.instances[name] = i
			info, known := dataplane.RuntimeInfo{PID: 7, Node: "r1", Uptime: time.Minute}, instance.Known{Number: 1, Peer: peer}
			if n == 1 {
				info.PID, info.Uptime, known.Peer = c.pid, c.uptime, c.peer
			}
			about := instance.About{Ref: i.ref(), Known: known}
			OfInstance{instance.Probed{About: about, Asked: noon, Info: info}}.apply(m, noon)
			OfInstance{instance.Checked{About: about}}.apply(m, noon)
		}
		said := saidOf(m)
		if twins := strings.Contains(said, "edge-1 has the same address, 10.0.0.1:5555"); twins != c.twins || len(m.instances["edge-2"].findings) > 0 != c.twins {
			t.Errorf("%s: said %q, findings %v", c.name, said, m.instances["edge-2"].findings)
		}
	}
}
