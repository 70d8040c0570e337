package ui

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// evil is what a malicious tenant puts into the names, messages and paths of their objects.
const evil = `</script><script>alert(1)</script>"onload="alert(2)' onmouseover=alert(3) javascript:alert(4)//<img src=x onerror=alert(5)>`

// poison sets every text in a value to evil, and fills empty values.
func poison(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for _, f := range v.Fields() {
			if f.CanSet() {
				poison(f, depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		poison(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			poison(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		poison(key, depth+1)
		poison(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// poisoned returns a source in which every text is evil.
func poisoned(t *testing.T) (Source, []snapshots.ID) {
	t.Helper()
	var fleet Fleet
	poison(reflect.ValueOf(&fleet).Elem(), 0)
	fleet.Status.Instances[1] = report.Instance{Name: "edge-1", Reachable: true, InSync: true}
	fleet.Live.Instances["edge-1"] = fleet.Live.Instances[evil]
	fleet.Status.Rollout.Phase = rollout.Soaking
	store := &fakeStore{stored: map[snapshots.ID]snapshots.Snapshot{}}
	var parent snapshots.ID
	for n := range 2 {
		d := snapshots.Draft{
			Files:   []snapshots.File{{Path: snapshots.ConfigFile, Content: fmt.Appendf(nil, "global\n    description %s %d\n", evil, n)}, {Path: "maps/host.map", Content: fmt.Appendf(nil, "%s %d\n", evil, n)}},
			Subject: evil,
		}
		poison(reflect.ValueOf(&d.Provenance).Elem(), 0)
		poison(reflect.ValueOf(&d.Quarantined).Elem(), 0)
		d.Provenance.Inputs[0].ResourceVersion = fmt.Sprint(n)
		s := d.Number(uint64(n+1), parent)
		parent = s.ID()
		store.ids, store.stored[parent] = append(store.ids, parent), s
	}
	for _, verb := range append(slices.Collect(mapsKeys(titles)), channel.Verb(evil)) {
		var e channel.Entry
		poison(reflect.ValueOf(&e).Elem(), 0)
		e.Verb, e.Turn, e.Snapshot = verb, strings.HasPrefix(string(verb), "d"), parent
		store.journal = append(store.journal, e)
	}
	return Source{Channel: evil, Fleet: func() Fleet { return fleet }, Store: store, Repository: "javascript:alert(6)"}, store.ids
}

func mapsKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Texts of others stay text on every page, whatever they contain.
func TestTextsOfOthersAreText(t *testing.T) {
	t.Parallel()
	source, ids := poisoned(t)
	h := server(t, source).Handler()
	for _, address := range everyPage(ids) {
		code, body := get(t, h, address)
		if code != 200 {
			t.Errorf("%s: %d %s", address, code, body)
		}
		if !strings.Contains(body, "&lt;script&gt;") {
			t.Errorf("%s shows no text of others: nothing is tested", address)
		}
		for _, wrong := range unsafe(t, body) {
			t.Errorf("%s: %s", address, wrong)
		}
	}
}

// everyPage returns the addresses of all pages, for a source with two snapshots and the instance edge-1.
func everyPage(ids []snapshots.ID) []string {
	return []string{
		"/", "/?name=edge&zone=&state=in+sync", link("/", "name", evil), "/instances/edge-1", "/instances/" + urlPath(evil), "/history", link("/history", "object", "Ingress shop/web", "host", evil),
		link("/history", "person", evil), "/snapshots/" + ids[1].String(), "/snapshots/head", link("/diff", "a", ids[0].String(), "b", ids[1].String()),
		link("/diff", "a", "r1", "b", "head", "file", "maps/host.map"),
	}
}

func urlPath(name string) string {
	return strings.TrimPrefix(functions["to"].(func(string, string) string)("", name), "/")
} //nolint:forcetypeassert // it is a slice of texts

// unsafe returns the parts of a page that could run as a script, or link elsewhere.
func unsafe(t *testing.T, body string) (out []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"iframe", "img", "object", "embed", "base", "style"}, n.Data) || n.Data == "script" && n.FirstChild != nil {
			out = append(out, "an element "+n.Data)
		}
		for _, a := range n.Attr {
			value := strings.ToLower(strings.TrimSpace(a.Val))
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "srcdoc":
				out = append(out, n.Data+" has "+a.Key)
			case slices.Contains([]string{"href", "src", "action"}, a.Key) && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "#"):
				out = append(out, n.Data+" leads to "+a.Val)
			case slices.Contains([]string{"href", "src", "action"}, a.Key) && strings.HasPrefix(value, "//"):
				out = append(out, n.Data+" leads to another host: "+a.Val)
			}
		}
	}
	return out
}

// Pages link to a commit only if the repository is on the web.
func TestCommitLinks(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]string{
		"https://forge.example.com/edge": "https://forge.example.com/edge/commit/abc123", "http://forge.example.com/edge": "http://forge.example.com/edge/commit/abc123",
		"javascript:alert(1)": "", "javascript://forge.example.com/%0aalert(1)": "", "data:text/html,x": "", "": "", "https://": "", "ssh://git@forge.example.com/edge": "",
	} {
		store := stored("global\n")
		a := newArchive(t.Context(), inCommits{store}, func() {})
		if got := (query{source: Source{Repository: repository}, archive: a}).commit(t.Context(), store.ids[0]); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
}

// inCommits is a store that keeps each snapshot in a commit.
type inCommits struct{ *fakeStore }
