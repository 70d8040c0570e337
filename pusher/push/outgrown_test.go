package push

import (
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// slotsOf has backends with a number of server slots each, by "name:number".
func slotsOf(backends ...string) (out []bind.Server) {
	for _, b := range backends {
		for n := range int(b[len(b)-1] - '0') {
			out = append(out, bind.Server{Backend: b[:len(b)-2], Name: fmt.Sprintf("s%d", n+1), Address: "10.0.0.1", Port: 80, State: bind.SlotReady})
		}
	}
	return out
}

// The reason of a reload is told where the worker runs the snapshot in another shape, and
// only there.
func TestOutgrown(t *testing.T) {
	t.Parallel()
	const own, same = "r000001-0000000001_aaaaaaaa", "r000002-0000000001_aaaaaaaa"
	const other = "r000001-0000000001_bbbbbbbb"
	for name, test := range map[string]struct {
		running, disk, want string // the nodes
		has, wants          []bind.Server
		said                string
	}{
		"one backend":                          {own, own, other, slotsOf("web:2"), slotsOf("web:4"), "backend web needs 4 server slots and has 2"},
		"the second":                           {own, own, other, slotsOf("api:2", "web:2"), slotsOf("api:2", "web:3"), "backend web needs 3 server slots and has 2"},
		"two":                                  {own, own, other, slotsOf("api:2", "web:2"), slotsOf("api:4", "web:3"), "backend api needs 4 server slots and has 2, and so does 1 other"},
		"three":                                {own, own, other, slotsOf("a:1", "b:1", "c:1"), slotsOf("a:2", "b:2", "c:2"), "backend a needs 2 server slots and has 1, and so do 2 others"},
		"one that shrinks":                     {own, own, other, slotsOf("a:4", "b:1"), slotsOf("a:2", "b:2"), "backend b needs 2 server slots and has 1"},
		"none has more":                        {own, own, other, slotsOf("web:2"), slotsOf("web:2"), "lines that take a reload changed, such as certificates or weights"},
		"fewer":                                {own, own, other, slotsOf("web:4"), slotsOf("web:2"), "lines that take a reload changed, such as certificates or weights"},
		"another revision of the same content": {same, same, other, slotsOf("web:2"), slotsOf("web:4"), "backend web needs 4 server slots and has 2"},
		"the same shape":                       {own, own, own, slotsOf("web:2"), slotsOf("web:4"), ""},
		"another snapshot":                     {"r000001-0000000009_aaaaaaaa", "r000001-0000000009_aaaaaaaa", other, slotsOf("web:2"), slotsOf("web:4"), ""},
		"the file is of another shape":         {own, other, other, slotsOf("web:2"), slotsOf("web:4"), ""},
		"a worker that is not ours":            {"bootstrap", "bootstrap", other, slotsOf("web:2"), slotsOf("web:4"), ""},
	} {
		disk := text{node: test.disk, servers: map[serverKey]serverLine{}}
		for _, s := range test.has {
			disk.servers[serverKey{s.Backend, s.Name}] = serverLine{}
		}
		if got := outgrown(disk, dataplane.RuntimeInfo{Node: test.running}, bind.Bound{Node: test.want, Servers: test.wants}); got != test.said {
			t.Errorf("%s: it says %q, want %q", name, got, test.said)
		}
	}
}
