package configmapstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// memory is what a writer remembers of the store's ConfigMaps from one publish to the next, so that it need not list
// them. It may be out of date, and nothing is believed of it until the writer has claimed a revision. The writer then
// reads, in a watch that goes on where the memory ends, all that happened up to its own claim: the API server sends events
// in order, so none before it is missing.
//
// Of old snapshots it only has names, and it looks at them again only if an event is about one. So a publish costs the same
// whatever the length of the history.
type memory struct {
	store   string
	version string // where the watch goes on
	signers string // the fingerprint of the list of signers by which snapshots were accepted
	newest  uint64 // the revision of the newest snapshot when old ones were settled last

	open    map[string]metav1.PartialObjectMetadata // by name: the newest snapshot, and all that is not settled
	settled map[string]types.UID                    // the manifests of older snapshots, by name
	pieces  map[types.UID][]piece                   // their chunks
	owners  map[string]types.UID                    // of those chunks, by name
}

// piece is a chunk of a settled snapshot.
type piece struct {
	name string
	uid  types.UID
}

// newMemory returns a memory of what was listed at a version.
func newMemory(store string, items []metav1.PartialObjectMetadata, version, signers string) *memory {
	m := &memory{
		store: store, version: version, signers: signers,
		open: map[string]metav1.PartialObjectMetadata{}, settled: map[string]types.UID{}, pieces: map[types.UID][]piece{}, owners: map[string]types.UID{},
	}
	for _, o := range items {
		m.see(o.ObjectMeta, false)
	}
	return m
}

// see notes a ConfigMap as it is now, or that it is gone.
func (m *memory) see(o metav1.ObjectMeta, gone bool) {
	m.unsettle(o.Name)
	delete(m.open, o.Name)
	if gone || m.addPiece(o) {
		return
	}
	o.ManagedFields = nil // most of its bytes
	m.open[o.Name] = metav1.PartialObjectMetadata{ObjectMeta: o}
}

// unsettle takes a ConfigMap out of what is settled. The chunks of a manifest are open again.
func (m *memory) unsettle(name string) {
	if uid, ok := m.settled[name]; ok {
		for _, p := range m.pieces[uid] {
			delete(m.owners, p.name)
			m.open[p.name] = metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: p.name, UID: p.uid, Labels: map[string]string{partLabel: partChunk}, OwnerReferences: []metav1.OwnerReference{{UID: uid}},
			}}
		}
		delete(m.pieces, uid)
		delete(m.settled, name)
	}
	if uid, ok := m.owners[name]; ok {
		m.pieces[uid] = slices.DeleteFunc(m.pieces[uid], func(p piece) bool { return p.name == name })
		delete(m.owners, name)
	}
}

// addPiece adds a chunk of a settled snapshot, and reports whether it is one.
func (m *memory) addPiece(o metav1.ObjectMeta) bool {
	if o.Labels[partLabel] != partChunk || o.Labels[stateLabel] == stateDelivered || len(o.OwnerReferences) != 1 {
		return false
	}
	uid := o.OwnerReferences[0].UID
	if _, ok := m.pieces[uid]; !ok {
		return false
	}
	m.pieces[uid] = append(m.pieces[uid], piece{o.Name, o.UID})
	m.owners[o.Name] = uid
	return true
}

// settle settles the snapshots of a listing of what is open that are older than its newest.
func (m *memory) settle(l listing) {
	m.newest = l.head().id.Revision
	for _, s := range l.complete {
		if s.delivered || s.id == l.head().id {
			continue
		}
		delete(m.open, s.name)
		m.settled[s.name], m.pieces[s.uid] = s.uid, nil
		for _, name := range l.chunks[s.uid] {
			if o, ok := m.open[name]; ok && m.addPiece(o.ObjectMeta) {
				delete(m.open, name)
			}
		}
	}
}

// errForgotten means that a memory cannot tell what the newest snapshot is.
var errForgotten = errors.New("the newest of the remembered snapshots is gone")

// listing returns the listing of what is open, and settles what is old. The error is errForgotten if older snapshots
// matter again.
func (m *memory) listing(s *Store) (listing, error) {
	var items []metav1.PartialObjectMetadata
	for _, o := range m.open {
		items = append(items, o)
	}
	l := newListing(m.store, items)
	if err := s.divide(&l); err != nil {
		return listing{}, err
	}
	signers, err := s.signing.signers()
	if err != nil {
		return listing{}, err
	}
	if len(m.settled) > 0 && (signers != m.signers || l.head().id.Revision < m.newest) {
		return listing{}, errForgotten
	}
	m.signers = signers
	m.settle(l)
	return l, nil
}

// signers returns the fingerprint of the list of signers, "" without one.
func (s *signing) signers() (string, error) {
	if !s.allowed.Enabled() {
		return "", nil
	}
	list, err := s.allowed.Fingerprint()
	return fmt.Sprint(list), err
}

// past keeps the memory between the publishes of a Store. Publishes may run at once.
type past struct {
	mu      sync.Mutex
	memory  *memory // of the last publish; nil during one, and after one that failed
	noWatch bool    // the API server does not do the watch that a memory needs
}

// recall takes the memory out, if there is one. Who published puts it back.
func (p *past) recall() *memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.memory
	p.memory = nil
	return m
}

func (p *past) memorize(m *memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory = m
}

func (p *past) canWatch() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.noWatch
}

// neverWatch makes each publish list all snapshots from now on.
func (p *past) neverWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noWatch = true
}

// catchUp is how long a writer waits for its own claim in a watch. It takes milliseconds; after that the store is
// listed.
const catchUp = 5 * time.Second

// follower brings a memory up to date.
type follower struct {
	*memory
	events watch.Interface
	stop   context.CancelFunc
}

// follow begins a watch of a store where the memory of it ends, nil if it cannot: the store is then listed.
func (m *memory) follow(ctx context.Context, s *Store) *follower {
	if m.version == "" || !s.past.canWatch() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	events, err := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace).
		Watch(ctx, metav1.ListOptions{LabelSelector: labels.Set{nameLabel: s.name}.String(), ResourceVersion: m.version})
	if err == nil {
		return &follower{m, events, stop}
	}
	stop()
	if apierrors.IsForbidden(err) {
		neverWatch(s, "the compiler may not watch ConfigMaps; apply the roles that compiler rbac prints")
	}
	return nil
}

// neverWatch makes each publish to a store list all snapshots from now on, and logs why.
func neverWatch(s *Store, why string) {
	s.past.neverWatch()
	s.log.Info("each publish lists all snapshots", "store", s.String(), "why", why)
}

// end ends the watch.
func (f *follower) end() {
	f.events.Stop()
	f.stop()
}

// until reads all that happened up to the creation of a ConfigMap.
func (f *follower) until(ctx context.Context, made *corev1.ConfigMap) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-f.events.ResultChan():
			if !open {
				return errors.New("watch: it ended")
			}
			o, ok := event.Object.(*metav1.PartialObjectMetadata)
			if !ok {
				return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
			}
			f.version = o.ResourceVersion
			if event.Type == watch.Bookmark {
				continue
			}
			f.see(o.ObjectMeta, event.Type == watch.Deleted)
			if o.UID == made.UID {
				return nil
			}
		}
	}
}

// asOf returns the snapshots as of the moment at which a manifest was created: by the follower, or by a list of all if
// there is none. It says whether the follower's memory is up to date; the listing then has what a writer needs, and no
// older snapshots.
func (p *publication) asOf(ctx context.Context, f *follower, claim *corev1.ConfigMap) (l listing, followed bool, err error) {
	if f != nil {
		within, cancel := context.WithTimeout(ctx, p.catchUp)
		err := f.until(within, claim)
		cancel()
		if err == nil {
			if l, err := f.memory.listing(p.Store); err == nil {
				return l, true, nil
			}
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			neverWatch(p.Store, "a watch of ConfigMaps says nothing of what was created")
		}
	}
	l, err = p.list(ctx, readable)
	return l, false, err
}
