package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// told returns a store with a history: three snapshots of two objects by two people, and acts on the channel.
func told(t *testing.T) (*fakeStore, []snapshots.ID) {
	t.Helper()
	var all []snapshots.Snapshot
	var parent snapshots.ID
	for n, change := range []struct{ by, subject, line string }{
		{"ann", "first snapshot", ""}, {"ann", "+1 route (Ingress shop/sale)", "shop.example.com|/sale/ shop_sale\n"}, {"ben", "+1 route (Ingress team2/api)", "team2.example.com|/ team2_api\n"},
	} {
		prefixes := ""
		for _, s := range all[max(0, len(all)-1):] {
			prefixes = string(s.Files[1].Content)
		}
		d := snapshots.Draft{
			Subject: change.subject, Time: noon.Add(time.Duration(n) * time.Hour), Provenance: snapshots.Provenance{Time: noon.Add(time.Duration(n) * time.Hour), Author: change.by, Inputs: []snapshots.Input{
				{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "shop", Name: "sale", ResourceVersion: fmt.Sprint(min(n, 1)), UID: "a"},
				{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "team2", Name: "api", ResourceVersion: fmt.Sprint(max(n, 1)), UID: "b"},
			}},
			Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}, {Path: "maps/prefix.map", Content: []byte(prefixes + change.line)}},
		}
		all = append(all, d.Number(uint64(n+1), parent)) //nolint:gosec // there are three
		parent = all[n].ID()
	}
	store := storeOf(all...)
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	store.journal = []channel.Entry{
		{At: at(1.1), Turn: true, Verb: channel.TurnFailed, Snapshot: all[1].ID(), Fleet: "edge", By: "pusher", Text: "edge-1: 5xx 7.1 %"},
		{At: at(1.2), Verb: channel.VerbPin, Snapshot: all[0].ID(), By: "bob", Reason: "incident 42"},
		{At: at(1.3), Verb: channel.VerbReject, Snapshot: all[1].ID(), By: "bob", Reason: "sale is for tomorrow"},
		{At: at(1.4), Verb: channel.VerbUnpin, By: "carol", Reason: "incident 42 is over"},
	}
	return store, store.ids
}

// The history says why something was undone and by whom. It can be filtered by object, host, person and kind.
func TestHistory(t *testing.T) {
	t.Parallel()
	store, ids := told(t)
	h := server(t, Source{Fleet: says(oneInstance()), Store: store}).Handler()
	moments := func(query string) (out []string) {
		_, body := get(t, h, "/history?"+query)
		for _, row := range strings.Split(body, `<tr class="moment `)[1:] {
			text := strings.Join(strings.Fields(plainText(row)), " ")
			for _, what := range []string{"r3 published", "r2 published", "r1 published", "unpinned", "r2 rejected", "r1 pinned", "rollout of r2 failed"} {
				if strings.Contains(text, what) {
					out = append(out, what)
				}
			}
		}
		return out
	}
	for query, want := range map[string]string{
		"":                            "r3 published, unpinned, r2 rejected, r1 pinned, rollout of r2 failed, r2 published, r1 published",
		"kind=snapshot":               "r3 published, r2 published, r1 published",
		"kind=act":                    "unpinned, r2 rejected, r1 pinned",
		"kind=turn":                   "rollout of r2 failed",
		"person=BOB":                  "r2 rejected, r1 pinned",
		"person=ann":                  "r2 published, r1 published",
		"host=shop.example.com":       "r2 rejected, rollout of r2 failed, r2 published",
		"host=team2.example.com":      "r3 published",
		"object=Ingress+shop/sale":    "r2 rejected, rollout of r2 failed, r2 published",
		"object=team2/api":            "r3 published",
		"object=team2/api&kind=act":   "",
		"host=nobody.example.com":     "",
		"person=bob&host=incident+42": "r1 pinned",
	} {
		if got := strings.Join(moments(query), ", "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	_, body := get(t, h, "/history")
	text := strings.Join(strings.Fields(plainText(body)), " ")
	for _, want := range []string{"bob sale is for tomorrow", "bob incident 42", "edge-1: 5xx 7.1 %", "carol incident 42 is over", "ann +1 route (Ingress shop/sale)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	// Two snapshots are selected, and the form leads to their difference.
	if !strings.Contains(body, `<form action="/diff" method="get">`) || !strings.Contains(body, `name="a" value="`+ids[0].String()+`"`) || !strings.Contains(body, `name="b" value="`+ids[2].String()+`"`) {
		t.Errorf("two cannot be selected: %s", body)
	}
	_, life := get(t, h, "/snapshots/r2")
	if text := strings.Join(strings.Fields(plainText(life)), " "); !strings.Contains(text, "sale is for tomorrow") || strings.Contains(text, "incident 42") {
		t.Errorf("the life of r2: %s", text)
	}
}

// A difference is shown side by side and folded. It names the objects of each hunk, and the line that decides.
func TestDifference(t *testing.T) {
	t.Parallel()
	lines := func(changed map[int]string) string {
		var out strings.Builder
		for n := range 60 {
			line, ok := changed[n]
			if !ok {
				line = fmt.Sprintf("    # line %d", n)
			}
			out.WriteString(line + "\n")
		}
		return out.String()
	}
	text := func(revision uint64, parent snapshots.ID, versions [2]string, config string, prefix string) snapshots.Snapshot {
		return snapshots.Draft{
			Subject: "s", Provenance: snapshots.Provenance{Author: "Ann", Time: noon, Inputs: []snapshots.Input{
				{APIVersion: "v1", Kind: "Ingress", Namespace: "shop", Name: "web", UID: "a", ResourceVersion: versions[0]}, {APIVersion: "v1", Kind: "Ingress", Namespace: "team2", Name: "api", UID: "b", ResourceVersion: versions[1]},
			}},
			Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}, {Path: "maps/prefix.map", Content: []byte(prefix)}},
		}.Number(revision, parent)
	}
	a := text(1, snapshots.ID{}, [2]string{"1", "1"}, lines(map[int]string{0: "backend shop_web_http", 50: "backend team2_api_http"}), "a b\n")
	b := text(2, a.ID(), [2]string{"2", "2"}, lines(map[int]string{0: "backend shop_web_http", 1: "    balance leastconn # shop/web", 50: "backend team2_api_http", 51: "    retries 7 # team2_api"}), "a b\nc d\n")
	h := server(t, Source{Fleet: says(oneInstance()), Store: storeOf(a, b)}).Handler()
	code, body := get(t, h, "/diff?a=r1&b=r2")
	page := strings.Join(strings.Fields(plainText(body)), " ")
	for _, want := range []string{
		"by Ann · takes a reload", "It reloads because of haproxy.cfg:2: + balance leastconn # shop/web", "Objects that changed: Ingress shop/web changed Ingress team2/api changed",
		"haproxy.cfg +2 −2 decides", "2 - # line 1 2 + balance leastconn # shop/web ← this line takes the reload", "maps/prefix.map +1 −0", "hapsnap diff r1 r2",
	} {
		if code != 200 || !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	// The first hunk is about one object, and the second, after the folded lines, about the other.
	first, second := strings.Index(page, "Ingress shop/web changed 1 backend"), strings.Index(page, "lines Ingress team2/api changed")
	if first < 0 || second < first || strings.Contains(page, "# line 25") {
		t.Errorf("hunks are not folded, or have not their objects: %d, %d in %s", first, second, page)
	}
	if _, alone := get(t, h, "/diff?a=r1&b=r2&file=maps/prefix.map"); strings.Contains(alone, "leastconn # shop/web</td>") || !strings.Contains(alone, "all files") {
		t.Errorf("one file alone: %s", plainText(alone))
	}
	if code, _ := get(t, h, "/diff?a=r1&b=r2&file=nothing"); code != 404 {
		t.Errorf("a file that does not differ: %d", code)
	}
}
