package bind

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

const classified = `global
    maxconn 10
defaults plain
    mode http
defaults
    balance source
backend a from plain
    fullconn 5
    #hapsnap servers shop/web weight=90
    #hapsnap servers shop/next weight=10 -- check
backend b
    timeout server 5s
    #hapsnap servers shop/web weight=90
    #hapsnap servers shop/next weight=10
`

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to  string // what is replaced in the configuration
		endpoints int    // of shop/web, where there were 2
		want      Classified
	}{
		"the same": {endpoints: 2, want: Classified{Verdict: Nothing}},
		"an endpoint more, which reweighs": {endpoints: 3, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 22, Text: "    server s1 10.0.0.1:80 weight 3",
		}},
		"an endpoint more": {from: "balance source", to: "balance leastconn", endpoints: 3, want: Classified{
			Verdict: Runtime, File: snapshots.ConfigFile, Line: 11, Text: "    server s1 10.0.0.1:80 weight 3",
		}},
		"consistent hashing takes weights": {from: "balance source", to: "balance source\n    hash-type consistent", endpoints: 3, want: Classified{
			Verdict: Runtime, File: snapshots.ConfigFile, Line: 12, Text: "    server s1 10.0.0.1:80 weight 3",
		}},
		"a line changes": {from: "fullconn 5", to: "fullconn 6", endpoints: 3, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 9, Text: "    fullconn 6",
		}},
		"a line comes": {from: "    fullconn 5\n", to: "    fullconn 5\n    fullconn 7\n", endpoints: 3, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 10, Text: "    fullconn 7",
		}},
		"a line goes": {from: "    fullconn 5\n", to: "", endpoints: 2, want: Classified{
			Verdict: Reload, Old: true, File: snapshots.ConfigFile, Line: 9, Text: "    fullconn 5",
		}},
		"the last line changes": {from: "timeout server 5s", to: "timeout server 6s", endpoints: 2, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 20, Text: "    timeout server 6s",
		}},
		"an option of servers": {from: "-- check", to: "-- check inter 1s", endpoints: 2, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 16, Text: "    server s2-1 10.0.1.1:80 weight 2 check inter 1s",
		}},
		"too few slots": {endpoints: 5, want: Classified{
			Verdict: Reload, File: snapshots.ConfigFile, Line: 15, Text: "    server s5 10.0.0.5:80 weight 9",
		}},
	} {
		old := classified
		if name == "an endpoint more" || strings.HasPrefix(name, "consistent") {
			old = strings.Replace(old, c.from, c.to, 1)
		}
		a, table := bindClassified(t, old, 2, nil)
		b, _ := bindClassified(t, strings.Replace(classified, c.from, c.to, 1), c.endpoints, table)
		if got := Classify(a, b); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if back := Classify(b, a); back.Verdict != c.want.Verdict {
			t.Errorf("%s, and back: %+v", name, back)
		}
	}
}

// bindClassified binds a configuration to n endpoints of shop/web.
func bindClassified(t *testing.T, config string, n int, table Slots) (Bound, Slots) {
	t.Helper()
	next := snapshots.ServicePort{Namespace: "shop", Service: "next"}
	endpoints := map[snapshots.ServicePort][]snapshots.Endpoint{next: {{Address: "10.0.1.1", Port: 80}}}
	web := snapshots.ServicePort{Namespace: "shop", Service: "web"}
	for i := range n {
		endpoints[web] = append(endpoints[web], snapshots.Endpoint{Address: "10.0.0." + string(rune('1'+i)), Port: 80})
	}
	s := draftOf(config)
	slots, _ := AssignSlots(table, must(Directives(s.Config()))(t), endpoints, time.Time{}, 0)
	return must(Bind(s, Inputs{Slots: slots, Layout: testLayout}))(t), slots
}
