package push

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestUnserved(t *testing.T) {
	ready, drain := bind.SlotReady, bind.SlotDrain
	a, b := server("s1", "10.0.0.1", ready), server("s2", "10.0.0.2", ready)
	other := func(s bind.Server) bind.Server {
		s.Backend = "api"
		return s
	}
	tests := map[string]struct {
		disk, want []bind.Server
		unserved   bool
	}{
		"the same":                           {list(a, b), list(a, b), false},
		"nobody is wanted":                   {list(a), list(spare("s1")), false},
		"nobody is wanted, nor there":        {list(spare("s1")), list(spare("s1")), false},
		"from none to one":                   {list(spare("s1")), list(a), true},
		"one of two is left":                 {list(a, b), list(a, spare("s2")), false},
		"one more":                           {list(a, spare("s2")), list(a, b), false},
		"all are replaced":                   {list(a, spare("s2")), list(spare("s1"), b), true},
		"the one on disk drains":             {list(a, spare("s2")), list(server("s1", "10.0.0.1", drain), b), true},
		"in another slot":                    {list(spare("s1"), server("s2", "10.0.0.1", ready)), list(a, spare("s2")), false},
		"another address in the slot":        {list(server("s1", "10.0.0.9", ready)), list(a), true},
		"disabled on disk":                   {list(server("s1", "10.0.0.1", drain)), list(a), true},
		"of no weight on disk":               {list(weighing(a, 0)), list(a), true},
		"of no weight":                       {list(spare("s1")), list(weighing(a, 0)), false},
		"of another weight":                  {list(weighing(a, 7)), list(a), false},
		"a second backend":                   {list(a, other(spare("s1"))), list(a, other(a)), true},
		"a second backend that is served":    {list(spare("s1"), other(a)), list(spare("s1"), other(a)), false},
		"nobody knows what is on disk":       {nil, list(a), true},
		"nobody knows, and nothing is there": {nil, nil, false},
	}
	for name, test := range tests {
		if got := Unserved(test.disk, test.want); got != test.unserved {
			t.Errorf("%s: unserved: %v, want %v", name, got, test.unserved)
		}
	}
}

func list(servers ...bind.Server) []bind.Server { return servers }

// The content of the disk is read from a text that the API has rewritten.
func TestWrittenServers(t *testing.T) {
	ready := bind.SlotReady
	disk := readText([]byte("backend web\n  server s1 10.0.0.1:80 weight 7\n  server s2 [fd00::1]:80 disabled\n  server s3 10.0.0.3:81\n"))
	want := list(server("s1", "10.0.0.1", ready), server("s2", "10.0.0.2", ready), server("s3", "10.0.0.3", ready), server("s4", "10.0.0.4", ready))
	got := disk.written(want)
	for n, s := range []bind.Server{
		weighing(server("s1", "10.0.0.1", ready), 7), server("s2", "fd00::1", bind.SlotSpare),
		{Backend: "web", Name: "s3", Address: "10.0.0.3", Port: 81, Weight: 1, State: ready}, server("s4", "10.0.0.4", bind.SlotSpare),
	} {
		if got[n] != s {
			t.Errorf("server %d is %+v on disk, want %+v", n+1, got[n], s)
		}
	}
}

// slotsOf returns backends with server slots, from "name:number".
func slotsOf(backends ...string) (out []bind.Server) {
	for _, b := range backends {
		for n := range int(b[len(b)-1] - '0') {
			out = append(out, bind.Server{Backend: b[:len(b)-2], Name: fmt.Sprintf("s%d", n+1), Address: "10.0.0.1", Port: 80, State: bind.SlotReady})
		}
	}
	return out
}

// The reason of a reload is given only if the worker runs the snapshot in another shape.
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
		has := map[serverKey]serverLine{}
		for _, s := range test.has {
			has[serverKey{s.Backend, s.Name}] = serverLine{}
		}
		disk := text{node: test.disk, read: func() map[serverKey]serverLine { return has }}
		if got := outgrown(disk, dataplane.RuntimeInfo{Node: test.running}, bind.Bound{Node: test.want, Servers: test.wants}); got != test.said {
			t.Errorf("%s: it says %q, want %q", name, got, test.said)
		}
	}
}

func TestForeignText(t *testing.T) {
	t.Parallel()
	pusher := Pusher{State: "abc", Place: "/state.json"}
	// file is a haproxy.cfg of a version, which was posted after another version.
	file := func(version, follows int64) dataplane.Text {
		return dataplane.Split(fmt.Appendf(nil, "# _version=%d\n%sglobal\n  node n\n", version, mark{pusher, follows}.line()))
	}
	for name, test := range map[string]struct {
		raw    dataplane.Raw
		marked bool
		want   string // the beginning of the reason
	}{
		"as it was posted":                   {raw: dataplane.Raw{Config: file(5, 4), Version: 5}, marked: true},
		"a post is under way":                {raw: dataplane.Raw{Config: file(5, 4), Version: 4}, marked: true},
		"edited, and the API has noticed":    {raw: dataplane.Raw{Config: file(5, 3), Version: 5}, marked: true, want: "it was changed after it was written"},
		"edited and put back":                {raw: dataplane.Raw{Config: file(5, 4), Version: 6}, marked: true, want: "it was changed and put back"},
		"edited, which its checksum tells":   {raw: dataplane.Raw{Config: file(5, 4), Version: 5, Checksum: "other"}, marked: true, want: "it was edited after it was written"},
		"without a mark where there was one": {raw: dataplane.Raw{Config: dataplane.Split([]byte("global\n")), Version: 5}, marked: true, want: "no pusher wrote it"},
		"without a mark, as ever":            {raw: dataplane.Raw{Config: dataplane.Split([]byte("global\n")), Version: 5}},
	} {
		if got := foreignText(test.raw, test.marked); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// To look at a text takes no memory for each of its lines, and keeps none of its servers: many instances are looked at
// at the same time, and there may be 100,000 directives and servers.
func TestLooksKeepNoLines(t *testing.T) {
	const backends, directives = 100, 100
	var config strings.Builder
	config.WriteString("# _version=1\nglobal\n  node n\n")
	var servers []bind.Server
	for n := range backends {
		s := bind.Server{Backend: fmt.Sprintf("b%d", n), Name: "s1", Address: "10.0.0.1", Port: 80, Weight: 1, State: bind.SlotReady}
		fmt.Fprintf(&config, "backend %s\n%s    server s1 10.0.0.1:80\n", s.Backend, strings.Repeat("    # hapsnap servers shop/web:http\n", directives))
		servers = append(servers, s)
	}
	text := []byte(config.String())
	if n := testing.AllocsPerRun(3, func() { readText(text) }); n > 4*backends {
		t.Errorf("reading %d comments takes %v allocations", backends*directives, n)
	}
	disk := readText(text)
	disk.read = func() map[serverKey]serverLine {
		t.Error("the servers are kept")
		return nil
	}
	if !disk.holdsServers(servers) {
		t.Error("the text does not hold its own servers")
	}
	few, many := []byte("backend b\n"), []byte("backend b\n")
	var wanted []bind.Server
	for n := range 1000 {
		many = fmt.Appendf(many, "    server s%d 10.0.0.1:80 check weight 7 disabled\n", n)
		wanted = append(wanted, bind.Server{Backend: "b", Name: fmt.Sprintf("s%d", n), Address: "10.0.0.1", Port: 80, Weight: 7, State: bind.SlotSpare})
	}
	for name, look := range map[string]func(config []byte, servers []bind.Server){
		"comparing":   func(config []byte, servers []bind.Server) { readText(config).holdsServers(servers) },
		"descriptors": func(config []byte, _ []bind.Server) { bind.CountDescriptors(config) },
	} {
		before := testing.AllocsPerRun(3, func() { look(few, wanted[:0]) })
		if n := testing.AllocsPerRun(3, func() { look(many, wanted) }) - before; n > 2.5*float64(len(wanted)) {
			t.Errorf("%s: %d servers take %v allocations", name, len(wanted), n)
		}
	}
}

// A list holds if each of its servers is in the text, whatever else is there, in whatever order.
func TestHoldsServers(t *testing.T) {
	ready := bind.SlotReady
	want := list(server("s1", "10.0.0.1", ready), server("s2", "10.0.0.2", bind.SlotSpare), bind.Server{Backend: "api", Name: "s1", Address: "10.0.0.3", Port: 80, Weight: 1, State: ready})
	const other = "backend other\n  server s1 10.9.9.9:80\nbackend api\n  server s1 10.0.0.3:80\n"
	for text, holds := range map[string]bool{
		other + "backend web\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80 disabled\n":                            true,
		other + "backend web\n  server s2 10.0.0.2:80 disabled\n  server s0 10.0.0.9:80\n  server s1 10.0.0.1:80\n":   true,
		other + "backend web\n  server s1 10.0.0.1:80\n":                                                              false,
		other + "backend web\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80\n":                                     false,
		other + "backend web\n  server s1 10.0.0.1:81\n  server s2 10.0.0.2:80 disabled\n":                            false,
		"backend web\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80 disabled\n":                                    false,
		other + "backend web\n  server s1 10.0.0.8:80\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80 disabled\n":   true,
		other + "backend web\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80 disabled\n  server s1 10.0.0.8:80\n":   false,
		other + "backend web\n  server s1 10.0.0.1:80\n  server s2 10.0.0.2:80 disabled\nbackend empty\n  mode tcp\n": true,
	} {
		if got := readText([]byte(text)).holdsServers(want); got != holds {
			t.Errorf("holds %v, want %v:\n%s", got, holds, text)
		}
	}
	if (text{}).holdsServers(want) || !(text{}).holdsServers(nil) {
		t.Error("a text that was not read holds servers, or does not hold none")
	}
}
