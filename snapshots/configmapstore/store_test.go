package configmapstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func publish(t *testing.T, s *Store, d snapshots.Draft) snapshots.ID {
	t.Helper()
	id, published, err := s.Publish(t.Context(), d)
	if err != nil || !published {
		t.Fatalf("publish: %s, published %v, %v", id, published, err)
	}
	return id
}

// ten is a configuration of 10 MB that cannot be compressed.
func ten() snapshots.Draft {
	large := make([]byte, 10<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large)
	return storetest.Draft("web", "files/large.bin", string(large))
}

// 10 MB become a manifest and chunks that fit into ConfigMaps. They are immutable, are deleted with their
// manifest, and Argo CD and Flux leave them alone.
func TestTenMegabytes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := ten()
	id := publish(t, p.open(), d)
	got, err := p.open().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := d.Number(1, snapshots.ID{})
	for _, f := range want.Files {
		if content, _ := got.File(f.Path); !bytes.Equal(content, f.Content) {
			t.Errorf("%s came back different", f.Path)
		}
	}
	manifest := p.object("edge-r000001")
	if manifest.Labels[stateLabel] != stateComplete || manifest.Annotations[digestAnnotation] != string(d.Digest()) {
		t.Errorf("the manifest has %v, %v", manifest.Labels, manifest.Annotations)
	}
	chunks := p.objects(partChunk)
	if len(chunks) != 12 {
		t.Errorf("there are %d chunks", len(chunks))
	}
	for _, o := range append(chunks, *manifest) {
		p.checkObject(o, manifest)
	}
}

func (p *place) checkObject(o corev1.ConfigMap, manifest *corev1.ConfigMap) {
	p.Helper()
	if o.Immutable == nil || !*o.Immutable || len(o.BinaryData[pieceKey]) > 900<<10 {
		p.Errorf("%s: immutable %v, %d bytes", o.Name, o.Immutable, len(o.BinaryData[pieceKey]))
	}
	for key, want := range map[string]string{
		"argocd.argoproj.io/compare-options": "IgnoreExtraneous", "argocd.argoproj.io/sync-options": "Prune=false",
		"kustomize.toolkit.fluxcd.io/prune": "disabled",
	} {
		if o.Annotations[key] != want {
			p.Errorf("%s: annotation %s is %q", o.Name, key, o.Annotations[key])
		}
	}
	if o.Name != manifest.Name && (len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != manifest.UID || o.OwnerReferences[0].Name != manifest.Name) {
		p.Errorf("%s is owned by %v", o.Name, o.OwnerReferences)
	}
}

var errKilled = errors.New("killed")

// doomed opens a store whose process dies at a step.
func (p *place) doomed(step string) *Store {
	s := p.open()
	s.step = func(at string) error {
		if strings.HasPrefix(at, step) {
			return errKilled
		}
		return nil
	}
	return s
}

// What a dead writer left is not read, and the next writer removes it.
func TestHalfASnapshot(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]string{
		"a claim": "after create edge-r000002", "a claim with chunks": "before complete edge-r000002", "some chunks": "after delete edge-r000002",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			first := publish(t, p.open(), storetest.Draft("a"))
			if strings.Contains(step, "delete") { // first, there must be something to delete
				_, _, err := p.doomed("before complete edge-r000002").Publish(t.Context(), storetest.Draft("b"))
				if !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
			}
			if _, _, err := p.doomed(step).Publish(t.Context(), storetest.Draft("b")); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			s := p.open()
			if ids, err := s.IDs(t.Context()); err != nil || !slices.Equal(ids, []snapshots.ID{first}) {
				t.Errorf("listed: %v, %v", ids, err)
			}
			if _, err := s.Get(t.Context(), snapshots.NewID(2, storetest.Draft("b").Digest())); !errors.Is(err, snapshots.ErrNotFound) {
				t.Errorf("half a snapshot is read: %v", err)
			}
			second := publish(t, s, storetest.Draft("c"))
			if manifests, chunks := p.objects(partManifest), p.objects(partChunk); second.Revision != 2 || len(manifests) != 2 || len(chunks) != 2 {
				t.Errorf("%s is one of %d manifests with %d chunks", second, len(manifests), len(chunks))
			}
		})
	}
}

// A writer that was taken for dead finds that its claim is gone. It publishes after what came meanwhile.
func TestSlowWriter(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	slow, once := p.open(), true
	slow.step = func(at string) error {
		if once && strings.HasPrefix(at, "before complete") {
			once = false
			publish(t, p.open(), storetest.Draft("quick"))
		}
		return nil
	}
	if id := publish(t, slow, storetest.Draft("slow")); id.Revision != 2 {
		t.Errorf("the slow one published %s", id)
	}
	if ids, err := p.open().IDs(t.Context()); err != nil || len(ids) != 2 || len(p.objects(partChunk)) != 2 {
		t.Errorf("there are %v, %v, and %d chunks", ids, err, len(p.objects(partChunk)))
	}
}

// A revision that became free because others published and deleted it is not used: its parent would be long
// gone.
func TestRevisionThatIsFreeAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	publish(t, p.open(), storetest.Draft("a"))
	slow, once := p.open(), true
	slow.step = func(at string) error {
		if once && at == "before create edge-r000002" {
			once = false
			quick := p.open()
			second := publish(t, quick, storetest.Draft("b"))
			publish(t, quick, storetest.Draft("c"))
			return quick.Delete(t.Context(), second)
		}
		return nil
	}
	id := publish(t, slow, storetest.Draft("slow"))
	got, err := p.open().Get(t.Context(), id)
	if err != nil || id.Revision != 4 || got.Manifest.Spec.Parent.Revision != 3 {
		t.Errorf("published %s after %s, %v", id, got.Manifest.Spec.Parent, err)
	}
}

func TestMissingChunk(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := publish(t, p.open(), storetest.Draft("a"))
	chunk := p.objects(partChunk)[0]
	if err := p.client.Delete(t.Context(), &chunk); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open().Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) || !strings.Contains(err.Error(), chunk.Name) {
		t.Errorf("get: %v", err)
	}
}

// A missing namespace does not count as an empty store.
func TestNoNamespace(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s, err := Open(Options{Config: p.config, Namespace: "not-there", Name: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	_, viewed := s.View(t.Context())
	_, got := s.Get(t.Context(), snapshots.ID{Revision: 1, Short: "0123456789"})
	_, _, published := s.Publish(t.Context(), storetest.Draft("a"))
	edited := s.UpdateChannel(t.Context(), "nothing", noon, func(*channel.Channel) error { return nil })
	for i, err := range []error{viewed, got, published, edited} {
		if !errors.Is(err, errNoNamespace) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// Two stores in a namespace are independent, even if the name of one begins with that of the other.
func TestTwoStores(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	publish(t, p.open(), storetest.Draft("a"))
	other, err := Open(Options{Config: p.config, Namespace: p.namespace, Name: "edge-r000001"})
	if err != nil {
		t.Fatal(err)
	}
	if id := publish(t, other, storetest.Draft("b")); id.Revision != 1 {
		t.Errorf("published %s", id)
	}
	if ids, err := p.open().IDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

// A channel keeps what people added to its ConfigMap. Without any key it is an error.
func TestChannelOfPeople(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{By: "ops", At: noon}); return nil }
	resume := func(c *channel.Channel) error { *c = c.Resumed(); return nil }
	if err := s.UpdateChannel(t.Context(), "pause", noon, pause); err != nil {
		t.Fatal(err)
	}
	o := p.object("edge-channel")
	if o.Data["pause"] != "true\nby: ops\nat: "+noon.Format(time.RFC3339) || o.Annotations["argocd.argoproj.io/sync-options"] != "Prune=false" {
		t.Errorf("the channel is %v, %v", o.Data, o.Annotations)
	}
	o.Labels["team"], o.Data["note"] = "edge", "call us"
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := s.UpdateChannel(t.Context(), "resume", noon, resume); err != nil {
		t.Fatal(err)
	}
	o = p.object("edge-channel")
	if o.Labels["team"] != "edge" || o.Data["note"] != "call us" || o.Data["pause"] != "" {
		t.Errorf("the channel is %v, %v", o.Data, o.Labels)
	}
	o.Data = map[string]string{"note": "call us"}
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if v, err := s.View(t.Context()); !errors.Is(err, channel.ErrInvalid) {
		t.Errorf("a channel without any key: %+v, %v", v, err)
	}
}

// A change with an editor is in the journal too, with the program that made it. It is added once, when the next
// act or entry is written.
func TestEditsByHandAreInTheJournal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	id := publish(t, s, storetest.Draft("a"))
	edit := func(key, value string) {
		t.Helper()
		o := p.object("edge-channel")
		o.Data[key] = value
		if err := p.client.Update(t.Context(), o, client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
	}
	edit("pin", id.String())
	turn := channel.Entry{At: noon, Turn: true, Verb: channel.TurnBegan, Snapshot: id, By: "pusher"}
	for range 2 {
		if err := s.Record(t.Context(), noon, turn); err != nil {
			t.Fatal(err)
		}
	}
	edit("note", "call us") // it has no effect on pushers
	edit("pause", "true")
	if err := s.UpdateChannel(t.Context(), "resume", noon, func(c *channel.Channel) error { *c = c.Resumed(); return nil }); err != nil {
		t.Fatal(err)
	}
	journal, err := s.Journal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range journal {
		if e.At.IsZero() {
			t.Errorf("%+v has no time", e)
		}
		got = append(got, fmt.Sprintf("%s %s: %s", e.Verb, e.By, e.Text))
	}
	want := []string{
		"edit kubectl-edit: changed by hand, not by a command; it says: pin " + id.String(), "began pusher: ",
		"edit kubectl-edit: changed by hand, not by a command; it says: pin " + id.String() + ", pause true", "edit : resume",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var told eventsv1.EventList
	if err := p.client.List(t.Context(), &told, client.InNamespace(p.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"it says: pin " + id.String() + ", by kubectl-edit", "pause true, by kubectl-edit"} {
		if !slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool { return e.Reason == "ChannelEdited" && strings.HasSuffix(e.Note, want) }) {
			t.Errorf("no Event says %q: %v", want, told.Items)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	t.Parallel()
	for namespace, name := range map[string]string{"": "edge", "edge": "", "Edge": "a", "a": "Edge", "b": strings.Repeat("x", 64), "c": "a_b", "d": "a/b"} {
		if err := Check(namespace, name); err == nil {
			t.Errorf("%s/%s is a store", namespace, name)
		}
	}
}

// as opens the store with a service account that has the permissions of the rules.
func (p *place) as(name string, rules []rbacv1.PolicyRule) *Store {
	p.Helper()
	s, err := Open(Options{Config: p.configOf(name, rules), Namespace: p.namespace, Name: "edge"})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// The rules are sufficient, and each verb has only what it needs.
func TestRules(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	reader := p.as("reader", Reading(p.namespace))
	writer := p.as("writer", Writing(p.namespace))
	person := p.as("person", slices.Concat(Reading(p.namespace), Channel("edge")))
	if v, err := reader.View(t.Context()); err != nil || len(v.IDs) != 0 { // also of an empty store
		t.Errorf("view: %v, %v", v, err)
	}
	first := publish(t, writer, storetest.Draft("a"))
	publish(t, writer, storetest.Draft("b"))
	if _, err := reader.Get(t.Context(), first); err != nil {
		t.Error(err)
	}
	approve := func(id snapshots.ID) error {
		return person.UpdateChannel(t.Context(), "approve", noon, func(c *channel.Channel) error { *c = c.Approve(id); return nil })
	}
	if err := approve(first); err != nil {
		t.Error(err)
	}
	pusher := p.as("pusher", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge")))
	if err := pusher.SetStatus(t.Context(), Report{Fields: map[string]string{"phase": "Healthy"}}); err != nil {
		t.Error(err)
	}
	// None of them may create ConfigMaps, so none can forge a snapshot.
	for _, s := range []*Store{person, pusher} {
		if _, err := s.create(t.Context(), newChannel("other", map[string]string{noteKey: "x"})); !apierrors.IsForbidden(err) {
			t.Errorf("a ConfigMap was made: %v", err)
		}
	}
	if err := reader.Delete(t.Context(), first); !apierrors.IsForbidden(err) {
		t.Errorf("a reader deletes: %v", err)
	}
	if err := writer.Delete(t.Context(), first); err != nil {
		t.Error(err)
	}
	if _, _, err := person.Publish(t.Context(), storetest.Draft("c")); err == nil {
		t.Error("who may change the channel can publish")
	}
}

// If the channel and the status do not exist, a user who may only change them gets an error with a hint.
func TestRulesWithoutChannel(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	pusher := p.as("pusher", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge")))
	edit := func(c *channel.Channel) error {
		*c = c.Approve(snapshots.ID{Revision: 1, Short: "0123456789"})
		return nil
	}
	err := pusher.UpdateChannel(t.Context(), "approve", noon, edit)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "edge-channel is not there") || !strings.Contains(process.Hint(err), "pusher rbac --create") {
		t.Errorf("channel: %v, hint %q", err, process.Hint(err))
	}
	err = pusher.SetStatus(t.Context(), Report{Fields: map[string]string{"phase": "Healthy"}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "edge-status is not there") {
		t.Errorf("status: %v", err)
	}
	maker := p.as("maker", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge"), Creating()))
	if err := maker.UpdateChannel(t.Context(), "approve", noon, edit); err != nil {
		t.Error(err)
	}
	if err := maker.SetStatus(t.Context(), Report{Fields: map[string]string{"phase": "Healthy"}}); err != nil {
		t.Error(err)
	}
}

// A writer that stays open notices that a chunk of the newest snapshot was deleted or replaced. Otherwise it
// does not read the snapshot again.
func TestDamagedHeadOfARunningStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var read atomic.Int32
	p.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/configmaps/edge-r") {
				read.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	s, d := p.open(), storetest.Draft("a")
	first := publish(t, s, d)
	again := func(want snapshots.ID) {
		t.Helper()
		if id, published, err := s.Publish(t.Context(), d); err != nil || published || id != want {
			t.Errorf("the same again: %s, published %v, %v", id, published, err)
		}
	}
	if again(first); read.Load() > 0 {
		t.Errorf("what this store wrote was read %d times", read.Load())
	}
	chunk := p.objects(partChunk)[0]
	p.replace(&chunk)
	if again(first); read.Load() == 0 {
		t.Error("a chunk that was replaced was not read")
	}
	chunk = p.objects(partChunk)[0]
	if err := p.client.Delete(t.Context(), &chunk); err != nil {
		t.Fatal(err)
	}
	second := publish(t, s, d)
	if _, err := p.open().Get(t.Context(), second); err != nil || second.Revision != 2 {
		t.Errorf("get %s: %v", second, err)
	}
	again(second)
}
