package compiler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// odd are the characters that YAML, terminals or Go's own quoting treat in a way of their
// own, and that an API server takes in annotations.
var odd = []string{"\x00", "\x1b[2J", "\x7f", "\u0080", "\u0085", "\u009b31m", "\u009f", "\u2028", "\u202e", "\ufeff", "\ufffe", "\uffff", "\U0001fffe", "\xff"}

// Whatever is in any field of any object, the others are published: nothing that an object
// holds keeps a manifest from being written or read.
func TestPublishedWhateverIsInFields(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	cfg := config.Default()
	cfg.TCPAnnotations.Ports, cfg.TCPAnnotations.Namespaces = []string{"10000-20000"}, []string{"*"}
	objects := set(t, 0)
	for i, p := range places(set(t, 1)) {
		attacked := set(t, i+1)
		p.put(attacked, fmt.Sprintf("EVIL%d%sEVIL", i, odd[i%len(odd)]))
		objects = append(objects, attacked...)
	}
	for i, o := range options.All() {
		for j, c := range odd {
			// What begins like an expression is quoted by the parser of expressions.
			for k, text := range []string{o.Example + c, "^/(" + c + " /x", "^/[" + c} {
				objects = append(objects, annotated(o, fmt.Sprintf("%d-%d-%d", i, j, k), text)...)
			}
		}
	}
	publish(t, check, cfg, objects)
}

func FuzzPublishedWhateverIsInFields(f *testing.F) {
	for i, c := range odd {
		f.Add(i*7, "^/("+c+" /x")
	}
	check := haproxy(f)
	all := places(set(f, 1))
	f.Fuzz(func(t *testing.T, n int, text string) {
		attacked := set(t, 1)
		all[(n%len(all)+len(all))%len(all)].put(attacked, text)
		o := options.All()[(n%len(options.All())+len(options.All()))%len(options.All())]
		publish(t, check, config.Default(), slices.Concat(set(t, 0), attacked, annotated(o, "fuzzed", text)))
	})
}

// annotated is an Ingress, or a Service, with an option.
func annotated(o options.Option, name, value string) []any {
	metadata := map[string]any{"namespace": "shop", "name": "odd-" + name, "annotations": map[string]any{options.Prefix + o.Name: value}}
	if o.On == options.OnService {
		return []any{map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": metadata,
			"spec": map[string]any{"ports": []any{map[string]any{"name": "http", "port": 80}}},
		}}
	}
	backend := map[string]any{"service": map[string]any{"name": "web0", "port": map[string]any{"name": "http"}}}
	return []any{map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
		"spec": map[string]any{"ingressClassName": "class0", "rules": []any{map[string]any{
			"host": "odd-" + name + ".example",
			"http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "Prefix", "backend": backend}}},
		}}},
	}}
}

// publish compiles and publishes, and checks that web0.example is served by what can be
// read again, and that nothing of it upsets a terminal.
func publish(t *testing.T, check *validate.Checker, cfg config.Config, objects []any) {
	t.Helper()
	result := compiled(t, check, cfg, objects)
	for _, d := range result.Diagnostics {
		if plain := strings.Replace(d.String(), "\n\thint: ", "", 1); strings.ContainsFunc(plain+d.Message+d.Hint, isControl) {
			t.Errorf("a terminal would obey %q", d.String())
		}
	}
	store := dirstore.Open(t.TempDir(), dirstore.Options{})
	id, _, err := compiler.Publish(t.Context(), store, result, cfg.ShrinkGuard)
	if err != nil {
		t.Fatalf("nothing is published for anybody: %v", err)
	}
	s, err := store.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("what was published cannot be read: %v", err)
	}
	if hosts, _ := s.File("maps/host.map"); !strings.Contains(string(hosts), "\nweb0.example web0.example\n") {
		t.Error("the sound Ingress is not served")
	}
	checkShown(t, s.Manifest)
}

func checkShown(t *testing.T, m snapshots.Manifest) {
	t.Helper()
	for _, q := range m.Spec.Quarantined {
		if strings.ContainsFunc(q.Kind+q.Namespace+q.Name+q.Reason, isControl) {
			t.Errorf("a terminal would obey %q", q)
		}
	}
	if strings.ContainsFunc(m.Spec.Subject, isControl) {
		t.Errorf("a terminal would obey the subject %q", m.Spec.Subject)
	}
}

// isControl reports whether a terminal may take a character for a command, or shows what
// follows in another order.
func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e }
