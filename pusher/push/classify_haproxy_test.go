package push

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

var (
	// With the race detector, each pair takes several times as long.
	pairs = flag.Int("pairs", map[bool]int{false: 2000, true: 250}[race.Enabled], "how many pairs to classify and to apply to HAProxy, each both ways")
	seed  = flag.Uint64("seed", 1, "what the pairs are generated from")
)

// perWorker is how many pairs one worker has at a time. The cost of changing one of them grows with their
// number.
const perWorker = 200

var anywhere = bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}

// TestClassifiedPairsComeToTheSame generates pairs of configurations. A pair may need a reload only if the
// generator changed the structure, or if an endpoint had no slot. All other pairs are applied to a real
// HAProxy. A worker that is changed at run time must equal a worker that loads the second side, and the same in
// the other direction.
func TestClassifiedPairsComeToTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*seed, 0))
	certificates := makeCertificates(t)
	fallback := certificates()
	count := map[bind.Verdict]int{}
	before, after := map[string]side{}, map[string]side{}
	for n := range *pairs {
		p := generate(r, n, certificates)
		c := p.classify(t, fallback)
		if count[c.Verdict]++; c.Verdict != bind.Reload {
			before[p.name], after[p.name] = p.a, p.b
		}
		if len(before) == perWorker || n == *pairs-1 {
			applyBothWays(t, before, after, fallback)
			clear(before)
			clear(after)
		}
	}
	t.Logf("of %d pairs: %v", *pairs, count)
	for _, v := range []bind.Verdict{bind.Nothing, bind.Runtime, bind.Reload} {
		if count[v] < *pairs/20 {
			t.Errorf("only %d pairs of %d need %s", count[v], *pairs, v)
		}
	}
}

// classify classifies the pair alone, and compares that with what was changed.
func (p pair) classify(t *testing.T, fallback []byte) bind.Classified {
	t.Helper()
	a, b := pack("/web", map[string]side{p.name: p.a}), pack("/web", map[string]side{p.name: p.b})
	from, table := a.bind(t, 1, fallback, anywhere, nil)
	to, _ := b.bind(t, 2, fallback, anywhere, table)
	c := bind.Classify(from, to)
	want := bind.Reload
	static := p.a.balance == "static-rr" || p.a.balance == "source"
	remapped := p.a.mapFile() != p.b.mapFile()
	switch {
	case p.fixed > 0 || !aligned(from.Servers, to.Servers) || static && reweighed(from, to) || remapped && p.a.lookup == "reg":
	case !remapped && slices.Equal(from.Servers, to.Servers) && string(p.a.certificate) == string(p.b.certificate):
		want = bind.Nothing
	default:
		want = bind.Runtime
	}
	if c.Verdict != want || (c.Verdict == bind.Nothing) != (c.File == "") {
		t.Errorf("%s is said to need %+v, not %s, from\n%s\nto\n%s", p.name, c, want, from.Config, to.Config)
	}
	return c
}

// reweighed reports whether the weight of a server differs.
func reweighed(from, to bind.Bound) bool {
	return !slices.EqualFunc(from.Servers, to.Servers, func(x, y bind.Server) bool { return x.Weight == y.Weight })
}

// applyBothWays changes one worker from the first sides to the second and back, at run time. Another worker
// loads each of them.
func applyBothWays(t *testing.T, before, after map[string]side, fallback []byte) {
	t.Helper()
	changed := newSubject(t)
	ways := changed.ways(t, before, after, fallback)
	changed.load(t, ways[0])
	worker, first := changed.have.Info.PID, changed.state(t, ways[0])
	for n, bound := range ways[1:] {
		changed.applyAtRuntime(t, ways[n], bound)
		state := changed.state(t, bound)
		loaded := newSubject(t)
		fresh := loaded.ways(t, before, after, fallback)[n+1]
		loaded.load(t, fresh)
		if diff := cmp.Diff(loaded.state(t, fresh), state); diff != "" {
			t.Fatalf("way %d (-loaded +changed):\n%s", n+1, diff)
		}
		if n == 0 && cmp.Equal(first, state) {
			t.Error("the states cannot be told apart")
		}
		loaded.Close()
	}
	defer changed.Close()
	if changed.have.Info.PID != worker {
		t.Errorf("worker %d was replaced by %d", worker, changed.have.Info.PID)
	}
}

// ways binds the first sides, the second ones, and the first ones again.
func (s *subject) ways(t *testing.T, before, after map[string]side, fallback []byte) []bind.Bound {
	t.Helper()
	a, b := pack(s.socket, before), pack(s.socket, after)
	first, table := a.bind(t, 1, fallback, s.layout, nil)
	second, table := b.bind(t, 2, fallback, s.layout, table)
	third, _ := a.bind(t, 3, fallback, s.layout, table)
	return []bind.Bound{first, second, third}
}

// subject is an instance with a real HAProxy.
type subject struct {
	*dataplanetest.Instance
	push   Instance
	layout bind.Layout
	socket string // of its frontend
	have   Running
}

func newSubject(t *testing.T) *subject {
	t.Helper()
	i := dataplanetest.Start(t, dataplanetest.Options{API: dataplanetest.V34})
	client, err := dataplane.New(dataplane.Options{URL: i.URL(), Username: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return &subject{
		Instance: i, push: Instance{API: client, ReloadTimeout: time.Minute, Override: &RunningOverride{}}, socket: filepath.Join(filepath.Dir(i.MasterSocket()), "web"),
		layout: bind.Layout{Maps: i.Dirs.Maps, Certificates: i.Dirs.Certificates, General: i.Dirs.General},
	}
}

// load makes the worker load a bound configuration, and brings it up to date.
func (s *subject) load(t *testing.T, bound bind.Bound) {
	t.Helper()
	done, err := s.push.Push(t.Context(), bound, nil, CertificateHashes{})
	if err != nil {
		t.Fatal(err)
	}
	s.have = Running{Servers: Loaded(bound.Servers), Persisted: true, Certificates: Hashes(bound), Info: done.Info}
	s.update(t, bound)
}

// applyAtRuntime changes the worker at run time.
func (s *subject) applyAtRuntime(t *testing.T, from, to bind.Bound) {
	t.Helper()
	done, err := s.push.ApplyAtRuntime(t.Context(), to, from, s.have, CertificateHashes{})
	if err != nil {
		t.Fatal(err)
	}
	s.have = done.Running
	s.update(t, to)
}

func (s *subject) update(t *testing.T, bound bind.Bound) {
	t.Helper()
	var err error
	if s.have, err = updated(t, s.push, wanted(bound), s.have); err != nil {
		t.Fatal(err)
	}
}

// state returns what the worker reports about its servers, maps and certificates.
func (s *subject) state(t *testing.T, bound bind.Bound) []string {
	t.Helper()
	out := serverStates(s.ask(t, "show servers state"))
	files, err := s.push.API.RuntimeMaps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(files, func(a, b dataplane.RuntimeMap) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		out = append(out, mapState(bind.LogicalMap(f.Name), s.ask(t, "show map "+filepath.Join(s.layout.Maps, f.Name)))...)
	}
	for _, f := range bound.Files {
		if f.Kind == bind.CertificateFile {
			shown := s.ask(t, "show ssl cert "+f.Path)
			out = append(out, f.Name+" "+regexp.MustCompile(`Serial: \S+`).FindString(shown))
		}
	}
	return out
}

func (s *subject) ask(t *testing.T, command string) string {
	t.Helper()
	out, err := s.Socket(command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out
}

// mapState returns the entries of a map. It sorts them if their order does not matter; other maps do not
// change.
func mapState(name, shown string) []string {
	var out []string
	for line := range strings.Lines(shown) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] != "#" {
			out = append(out, name+" "+f[1]+" "+f[2])
		}
	}
	slices.Sort(out)
	return append(out, name)
}

// serverStates returns the address, weight and state of each server. Of the admin state, bits 0 and 3 count
// (maintenance and drain). The other bits show only how the state came about. A spare slot may be drained, since the
// API does not put a server into maintenance that it reports to be there, see [read]. It takes no traffic either way.
func serverStates(shown string) []string {
	var out []string
	for line := range strings.Lines(shown) {
		f := strings.Fields(line)
		if len(f) < 19 || f[0] == "#" {
			continue
		}
		admin, _ := strconv.Atoi(f[6])
		if f[4] == bind.SpareAddress && admin&8 != 0 {
			admin = 1
		}
		out = append(out, fmt.Sprintf("%s/%s %s:%s weight %s maint %v drain %v", f[1], f[3], f[4], f[18], f[7], admin&1 != 0, admin&8 != 0))
	}
	return out
}
