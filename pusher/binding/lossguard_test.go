package binding

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// servicesWith returns Services with these numbers of endpoints.
func servicesWith(sizes map[string]int) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for name, n := range sizes {
		for i := range n {
			out[sp(name)] = append(out[sp(name)], snapshots.Endpoint{Address: fmt.Sprintf("10.0.%d.%d", i/200, i%200+1), Port: 80})
		}
	}
	return out
}

func anyService(snapshots.ServicePort) bool { return true }

func apply(known, changes map[snapshots.ServicePort][]snapshots.Endpoint) {
	for port, endpoints := range changes {
		if known[port] = endpoints; len(endpoints) == 0 {
			delete(known, port)
		}
	}
}

func TestLiveGuard(t *testing.T) {
	t.Parallel()
	ten := map[string]int{"a/1": 1, "a/2": 1, "a/3": 1, "a/4": 1, "a/5": 1, "b/1": 1, "b/2": 1, "b/3": 1, "b/4": 1, "b/5": 1}
	type step struct {
		after time.Duration
		says  map[string]saying // about Services whose endpoints are gone
		back  []string
		drop  []string // no snapshot has them any more
		kept  string   // all Services whose endpoints are kept then, in order
		gone  string   // all Services without endpoints then, in order
	}
	for name, test := range map[string]struct {
		fleet map[string]int
		steps []step
	}{
		"one file is deleted":                       {ten, []step{{says: map[string]saying{"a/1": unsaid}, gone: "[a/1]"}}},
		"scaled to zero, all of them":               {map[string]int{"a/1": 3, "b/1": 2}, []step{{says: map[string]saying{"a/1": said, "b/1": said}, gone: "[a/1 b/1]"}}},
		"everything is gone":                        {map[string]int{"a/1": 1, "b/1": 1}, []step{{says: map[string]saying{"a/1": unsaid, "b/1": unsaid}, kept: "[a/1 b/1]"}}},
		"everything, Services too":                  {ten, []step{{says: map[string]saying{"a/1": unlisted, "a/2": unlisted, "a/3": unlisted, "b/1": unlisted, "b/2": unlisted}, kept: "[a/1 a/2 a/3 b/1 b/2]"}}},
		"half is gone":                              {ten, []step{{says: map[string]saying{"a/1": unsaid, "a/2": unsaid, "a/3": unsaid, "b/1": unsaid, "b/2": unsaid}, kept: "[a/1 a/2 a/3 b/1 b/2]"}}},
		"less than half":                            {ten, []step{{says: map[string]saying{"a/1": unsaid, "a/2": unsaid, "b/1": unsaid, "b/2": unsaid}, gone: "[a/1 a/2 b/1 b/2]"}}},
		"a large Service alone":                     {map[string]int{"a/1": 10, "a/2": 1, "b/1": 1}, []step{{says: map[string]saying{"a/1": unsaid}, kept: "[a/1]"}}},
		"a namespace":                               {map[string]int{"a/1": 1, "b/1": 5, "b/2": 5}, []step{{says: map[string]saying{"a/1": unsaid}, kept: "[a/1]"}}},
		"a namespace, of which other Services stay": {map[string]int{"a/1": 1, "b/1": 5, "b/2": 5}, []step{{says: map[string]saying{"a/1": unlisted}, gone: "[a/1]"}}},
		"a namespace and a Service of another one": {map[string]int{"a/1": 1, "b/1": 5, "b/2": 5, "b/3": 1},
			[]step{{says: map[string]saying{"a/1": unsaid, "b/3": unsaid}, kept: "[a/1]", gone: "[b/3]"}}},
		"one file after another": {ten, []step{
			{says: map[string]saying{"a/1": unsaid}, gone: "[a/1]"}, {after: time.Second, says: map[string]saying{"a/2": unsaid}, gone: "[a/1 a/2]"},
			{after: time.Second, says: map[string]saying{"b/1": unsaid, "b/2": unsaid}, gone: "[a/1 a/2 b/1 b/2]"},
			{after: time.Second, says: map[string]saying{"b/3": unsaid}, kept: "[a/1 a/2 b/1 b/2 b/3]"}}},
		"slowly, one after another": {ten, []step{
			{says: map[string]saying{"a/1": unsaid}, gone: "[a/1]"}, {after: 2 * time.Minute, says: map[string]saying{"a/2": unsaid}, gone: "[a/1 a/2]"},
			{after: 2 * time.Minute, says: map[string]saying{"a/3": unsaid}, gone: "[a/1 a/2 a/3]"}, {after: 2 * time.Minute, says: map[string]saying{"b/1": unsaid}, gone: "[a/1 a/2 a/3 b/1]"},
			{after: 2 * time.Minute, says: map[string]saying{"b/2": unsaid}, gone: "[a/1 a/2 a/3 b/1 b/2]"}}},
		"it comes back in parts": {ten, []step{
			{says: map[string]saying{"a/1": unsaid, "a/2": unsaid, "a/3": unsaid, "b/1": unsaid, "b/2": unsaid}, kept: "[a/1 a/2 a/3 b/1 b/2]"},
			{after: time.Hour, back: []string{"a/1", "a/2", "a/3"}, kept: "[b/1 b/2]"}, {back: []string{"b/1"}, kept: "[b/2]"}, {says: map[string]saying{"b/2": said}, gone: "[b/2]"}}},
		"one more, while a half is kept": {ten, []step{
			{says: map[string]saying{"a/1": unsaid, "a/2": unsaid, "a/3": unsaid, "b/1": unsaid, "b/2": unsaid}, kept: "[a/1 a/2 a/3 b/1 b/2]"},
			{after: time.Hour, says: map[string]saying{"b/5": unsaid}, kept: "[a/1 a/2 a/3 b/1 b/2 b/5]"}}},
		"no snapshot has it any more": {map[string]int{"a/1": 1, "b/1": 5, "b/2": 5}, []step{
			{says: map[string]saying{"a/1": unsaid}, kept: "[a/1]"}, {drop: []string{"a/1"}, gone: "[a/1]"}}},
		"what no snapshot has": {map[string]int{"a/1": 9, "b/1": 1}, []step{{drop: []string{"a/1"}}, {says: map[string]saying{"a/1": unsaid}, gone: "[a/1]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, known := servicesWith(test.fleet), servicesWith(test.fleet)
			dropped := map[snapshots.ServicePort]bool{}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var g lossGuard
			for n, s := range test.steps {
				now = now.Add(s.after)
				reports := map[snapshots.ServicePort]report{}
				for name, says := range s.says {
					reports[sp(name)] = report{saying: says}
				}
				for _, name := range s.back {
					reports[sp(name)] = report{endpoints: fleet[sp(name)]}
				}
				for _, name := range s.drop {
					dropped[sp(name)] = true
				}
				var changes map[snapshots.ServicePort][]snapshots.Endpoint
				g, changes = g.take(known, reports, func(p snapshots.ServicePort) bool { return !dropped[p] }, now)
				apply(known, changes)
				var gone []snapshots.ServicePort
				for port := range fleet {
					if len(known[port]) == 0 {
						gone = append(gone, port)
					}
				}
				slices.SortFunc(gone, snapshots.ServicePort.Compare)
				if kept := fmt.Sprint(g.ports()); kept != cmp.Or(s.kept, "[]") || fmt.Sprint(gone) != cmp.Or(s.gone, "[]") {
					t.Errorf("step %d: kept %s and gone %s, want %s and %s", n, kept, gone, cmp.Or(s.kept, "[]"), cmp.Or(s.gone, "[]"))
				}
			}
		})
	}
}

func TestLiveGuardConfirmed(t *testing.T) {
	t.Parallel()
	known, now := servicesWith(map[string]int{"a/1": 1, "b/1": 1}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lost := map[snapshots.ServicePort]report{sp("a/1"): {saying: unsaid}, sp("b/1"): {saying: unsaid}}
	g, changes := lossGuard{}.take(known, lost, anyService, now)
	apply(known, changes)
	name := g.name()
	if later, _ := g.take(known, lost, anyService, now.Add(time.Hour)); later.name() != name || name == "" {
		t.Errorf("the loss is %q, and later %q", name, later.name())
	}
	part, _ := g.take(known, map[snapshots.ServicePort]report{sp("a/1"): {endpoints: known[sp("a/1")]}}, anyService, now)
	again, _ := lossGuard{}.take(known, lost, anyService, now.Add(time.Hour))
	if part.name() == name || again.name() == name {
		t.Errorf("another loss has the name %s too", name)
	}
	g, changes = g.confirm()
	apply(known, changes)
	if g.name() != "" || len(known) > 0 {
		t.Errorf("after it was confirmed, %v is known", known)
	}
	if g, changes = g.take(known, lost, anyService, now); len(changes) > 0 || g.name() != "" {
		t.Errorf("a loss that was confirmed is one again: %v", changes)
	}
}

// sourceStory is a source with random changes, and the guard that reads it.
type sourceStory struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	truth  map[snapshots.ServicePort][]snapshots.Endpoint // the real endpoints
	absent map[snapshots.ServicePort]bool                 // Services that the source lacks
	known  map[snapshots.ServicePort][]snapshots.Endpoint
	guard  lossGuard
	trail  []string
}

func (s *sourceStory) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), s.trail)
}

// read gives the guard everything in the source, as from a directory.
func (s *sourceStory) read() {
	reports := map[snapshots.ServicePort]report{}
	for port, endpoints := range s.truth {
		if reports[port] = (report{endpoints: endpoints}); s.absent[port] {
			reports[port] = report{saying: unsaid}
		}
	}
	var changes map[snapshots.ServicePort][]snapshots.Endpoint
	s.guard, changes = s.guard.take(s.known, reports, anyService, s.now)
	apply(s.known, changes)
	for port, endpoints := range s.truth {
		if !s.absent[port] && !slices.Equal(endpoints, s.known[port]) {
			s.failf("%s is said to have %v, and has %v", port, endpoints, s.known[port])
		}
		if !s.absent[port] && s.guard.kept[port] {
			s.failf("%s is kept, and the source has it", port)
		}
	}
}

// restart starts another pusher with the saved state.
func (s *sourceStory) restart() {
	var slots bind.Slots
	var directives []bind.Directive
	for port := range s.known {
		directives = append(directives, bind.Directive{Backend: "x", Service: port})
	}
	slots, _ = bind.AssignSlots(nil, directives, s.known, s.now, 0)
	before := s.known
	guard, err := s.guard.saved().guard()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.guard.name() != guard.name() {
		s.failf("after a restart the loss is %q, was %q", guard.name(), s.guard.name())
	}
	s.guard, s.known = guard, knownEndpoints(slots)
	if diff := gocmp.Diff(before, s.known, cmpopts.EquateEmpty()); diff != "" {
		s.failf("a new pusher knows other endpoints:\n%s", diff)
	}
}

// The guard believes at once what a source says, and also a single loss. A mass loss empties no Service,
// neither at once nor in several steps within a minute, nor over restarts.
func TestLiveGuardInRandomStories(t *testing.T) {
	t.Parallel()
	stories := 3000
	if testing.Short() {
		stories = 300
	}
	for seed := range uint64(stories) {
		r := rand.New(rand.NewPCG(seed, 12))
		s := &sourceStory{t: t, r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), absent: map[snapshots.ServicePort]bool{}}
		sizes := map[string]int{}
		for range 3 + r.IntN(12) {
			sizes[fmt.Sprintf("%c/%d", 'a'+rune(r.IntN(3)), r.IntN(6))] = 1 + r.IntN(4)
		}
		s.truth, s.known = servicesWith(sizes), map[snapshots.ServicePort][]snapshots.Endpoint{}
		s.trail = append(s.trail, fmt.Sprintf("seed %d: %v", seed, sizes))
		s.read()
		for range 12 {
			s.now = s.now.Add(time.Duration(r.IntN(40)) * time.Second)
			s.something()
		}
	}
}

func (s *sourceStory) something() {
	ports := slices.SortedFunc(maps.Keys(s.truth), snapshots.ServicePort.Compare)
	port := ports[s.r.IntN(len(ports))]
	before := maps.Clone(s.known)
	switch what := s.r.IntN(7); what {
	case 0: // scaled, perhaps to zero
		s.trail = append(s.trail, fmt.Sprintf("\n%s is scaled", port))
		s.truth[port] = servicesWith(map[string]int{"z/z": s.r.IntN(5)})[sp("z/z")]
		delete(s.absent, port)
		s.read()
	case 1: // one is lost, long after other changes
		s.now = s.now.Add(lossWindow + time.Second)
		s.trail = append(s.trail, fmt.Sprintf("\n%s is lost alone", port))
		s.absent[port] = true
		all, space, lost := 0, 0, len(before[port])
		for other, endpoints := range before {
			all += len(endpoints)
			if s.guard.kept[other] && other != port {
				lost += len(endpoints)
			} else if other.Namespace == port.Namespace && other != port {
				space += len(endpoints)
			}
		}
		was := s.guard.kept[port]
		s.read()
		if few := 2*lost < all && space > 0; few && !was && len(s.known[port]) > 0 {
			s.failf("%s was lost alone, and is kept", port)
		}
	case 2, 3: // many are lost, at once or in a row
		many := map[snapshots.ServicePort]bool{}
		for _, other := range ports {
			if s.r.IntN(4) > 0 || what == 2 && other.Namespace == port.Namespace {
				many[other] = true
			}
		}
		s.trail = append(s.trail, fmt.Sprintf("\n%v are lost (%d)", many, what))
		s.lose(many, what == 3)
	case 4: // some are back
		for other := range s.absent {
			if s.r.IntN(2) == 0 {
				delete(s.absent, other)
			}
		}
		s.trail = append(s.trail, fmt.Sprintf("\nback, but %v", s.absent))
		s.read()
	case 5:
		s.trail = append(s.trail, "\nrestart")
		s.restart()
		s.read()
		if !maps.EqualFunc(before, s.known, slices.Equal[[]snapshots.Endpoint]) {
			s.failf("a restart alone changes %v to %v", before, s.known)
		}
	case 6:
		s.trail = append(s.trail, "\nconfirmed")
		var changes map[snapshots.ServicePort][]snapshots.Endpoint
		s.guard, changes = s.guard.confirm()
		apply(s.known, changes)
		for other := range s.absent {
			if len(s.known[other]) > 0 {
				s.failf("%s was confirmed to be gone, and is there", other)
			}
		}
		s.read()
	}
}

// lose removes Services from the source. If that is a mass loss, none of them may become empty.
func (s *sourceStory) lose(many map[snapshots.ServicePort]bool, inARow bool) {
	before := maps.Clone(s.known)
	all, lost := 0, 0
	spaces, lostOf := map[string]int{}, map[string]int{}
	for port, endpoints := range before {
		all, spaces[port.Namespace] = all+len(endpoints), spaces[port.Namespace]+len(endpoints)
		if many[port] {
			lost, lostOf[port.Namespace] = lost+len(endpoints), lostOf[port.Namespace]+len(endpoints)
		}
	}
	for port := range many {
		if s.absent[port] = true; inARow {
			s.now = s.now.Add(time.Second)
			s.read()
		}
	}
	s.read()
	for port := range many {
		mass := 2*lost >= all || lostOf[port.Namespace] == spaces[port.Namespace]
		if mass && len(before[port]) > 0 && !slices.Equal(before[port], s.known[port]) {
			s.failf("%s was emptied by a mass of losses: %d of %d, %d of %d in its namespace", port, lost, all, lostOf[port.Namespace], spaces[port.Namespace])
		}
	}
}

const (
	sliceOfWeb = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
---`
	sliceOfBlog = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: blog, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.0.0.2], conditions: {ready: true}}]
---`
	emptySliceOfWeb = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: []
endpoints: []
---`
	serviceWeb = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  clusterIP: 10.96.0.7
  selector: {app: web, tier: front}
  ports: [{name: http, port: 80, targetPort: http, protocol: TCP}]
---`
	serviceOther = `
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
spec: {selector: {app: other}, ports: [{name: http, port: 80}]}
---`
	serviceElsewhere = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: blog}
spec: {selector: {app: web, tier: front}, ports: [{name: http, port: 80}]}
---`
	serviceWithoutSelector = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---`
	podOfWeb = `
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web, tier: front}}
spec: {containers: [{name: web, image: "example.com/web:1"}]}
status: {phase: Running}
---`
)

// workloadOf is a workload whose pods the Service web selects, written as in a file.
func workloadOf(kind, namespace, replicas string) string {
	return `
apiVersion: apps/v1
kind: ` + kind + `
metadata: {name: web, namespace: ` + namespace + `, annotations: {example.com/owner: ann}}
spec:
  ` + replicas + `
  revisionHistoryLimit: 3
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate}
  template:
    metadata: {labels: {app: web, tier: front, version: "2"}}
    spec:
      containers:
      - name: web
        image: example.com/web:2
        ports: [{name: http, containerPort: 8080}]
        resources: {limits: {memory: 64Mi}}
---`
}

// readObjects reads a directory with one file of manifests, as for --live.
func readObjects(t *testing.T, text string) Objects {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := translate(set, nil)
	return objects
}

// The manifests of a directory are evidence about a Service without endpoints.
func TestEvidence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects string
		want    saying
	}{
		"nothing":                                {"", unsaid},
		"its slice has endpoints":                {sliceOfWeb, said},
		"its slice is there and empty":           {emptySliceOfWeb, said},
		"its slice, and no Service":              {emptySliceOfWeb + serviceOther, said},
		"a Service alone":                        {serviceWeb, unsaid},
		"a Service without a selector":           {serviceWithoutSelector + workloadOf("Deployment", "shop", "replicas: 0"), unsaid},
		"no Service, others of the namespace":    {serviceOther, unlisted},
		"no Service, others of another one":      {serviceElsewhere, unsaid},
		"a Deployment of none":                   {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0"), said},
		"a StatefulSet of none":                  {serviceWeb + workloadOf("StatefulSet", "shop", "replicas: 0"), said},
		"a ReplicaSet of none":                   {serviceWeb + workloadOf("ReplicaSet", "shop", "replicas: 0"), said},
		"a Deployment of two":                    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 2"), unsaid},
		"a Deployment that does not say":         {serviceWeb + workloadOf("Deployment", "shop", ""), unsaid},
		"a DaemonSet":                            {serviceWeb + workloadOf("DaemonSet", "shop", ""), unsaid},
		"a Deployment of none elsewhere":         {serviceWeb + workloadOf("Deployment", "blog", "replicas: 0"), unsaid},
		"a Deployment of none, of another app":   {serviceWeb + strings.ReplaceAll(workloadOf("Deployment", "shop", "replicas: 0"), "tier: front", "tier: back"), unsaid},
		"a Deployment of none and one of two":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + workloadOf("StatefulSet", "shop", "replicas: 2"), unsaid},
		"a Deployment of none, and a Pod":        {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + podOfWeb, unsaid},
		"a Deployment of none, and no Service":   {workloadOf("Deployment", "shop", "replicas: 0"), unsaid},
		"replicas that are no number":            {serviceWeb + workloadOf("Deployment", "shop", "replicas: none"), unsaid},
		"a Service that cannot be decoded":       {serviceOther + "\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: nonsense\n", unsaid},
		"a workload of a kind that nobody knows": {serviceWeb + "\napiVersion: example.com/v1\nkind: Rollout\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 0}\n", unsaid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := readObjects(t, test.objects)
			if got := read.evidence.of(sp("shop/web:http")); got != test.want || read.unsure {
				t.Errorf("the directory speaks of it as %v, want %v; problems %q", got, test.want, read.problems)
			}
		})
	}
}

// The known endpoints change as they should when the manifests of a directory change.
func TestLossesOfADirectory(t *testing.T) {
	t.Parallel()
	const both = sliceOfWeb + sliceOfBlog
	for name, test := range map[string]struct {
		then string
		want string // endpoints of shop/web and blog/web, and what is kept
	}{
		"the same":                     {both, "1 1 []"},
		"nothing":                      {"", "1 1 [blog/web:http shop/web:http]"},
		"half of it":                   {sliceOfBlog, "1 1 [shop/web:http]"},
		"half of it is empty":          {emptySliceOfWeb + sliceOfBlog, "0 1 []"},
		"half of it is scaled to zero": {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + sliceOfBlog, "0 1 []"},
		"half of it runs elsewhere":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 2") + sliceOfBlog, "1 1 [shop/web:http]"},
		// Half of the Services vanish from a directory together with their slices.
		"half of it, Services too":       {serviceOther + sliceOfBlog, "1 1 [shop/web:http]"},
		"all of it is scaled to zero":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + serviceElsewhere + workloadOf("Deployment", "blog", "replicas: 0"), "0 0 []"},
		"a file that cannot be parsed":   {"\nkind: [\n---" + sliceOfBlog, "1 1 []"},
		"a slice that breaks its schema": {strings.ReplaceAll(sliceOfWeb, "[{name: http, port: 80, protocol: TCP}]", "nonsense") + sliceOfBlog, "1 1 []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshots.Snapshot{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(
				"backend a\n    #hapsnap servers shop/web:http\nbackend b\n    #hapsnap servers blog/web:http\n")}}}
			l := NewSources(New(nil, FromDirectory, Refusals{}), NewRefusals(nil, nil), nil, nil, noon)
			l.Use(map[snapshots.ID]snapshots.Snapshot{{Revision: 1, Short: "aaaaaaaaaa"}: s}, noon)
			l.TakeRead(readObjects(t, both), noon)
			l.TakeRead(readObjects(t, test.then), noon.Add(time.Second))
			known := l.Endpoints()
			got := fmt.Sprint(len(known[sp("shop/web:http")]), len(known[sp("blog/web:http")]), l.losses.guard.ports())
			if got != test.want {
				t.Errorf("known and kept are %s, want %s", got, test.want)
			}
		})
	}
}
