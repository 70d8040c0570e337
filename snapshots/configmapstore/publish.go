package configmapstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// tries is how often a writer may be overtaken, and interval how long it waits before it looks again.
// Waiting for another writer to finish does not count.
const (
	tries    = 20
	interval = 30 * time.Millisecond
)

var (
	errBusy  = errors.New("another writer is at work")
	errMoved = errors.New("another writer was faster")
)

// Publish stores the draft as the newest snapshot. A draft with the content of the newest is not
// stored: Publish returns the ID of the newest, and false. A newest snapshot that is corrupt is
// followed by the next revision. A draft that is too large is refused with its largest files.
//
// After an error it is not known whether the snapshot is published; publishing the same draft again
// finds out.
func (s *Store) Publish(ctx context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	if err := sequence.Check(d); err != nil {
		return snapshots.ID{}, false, err
	}
	p := publication{Store: s, taken: map[uint64]int{}, mine: map[types.UID]bool{}, seen: map[types.UID]sighting{}}
	for try := 1; ; {
		id, published, err := p.try(ctx, d)
		switch {
		case err == nil:
			return id, published, nil
		case overtaken(err) && try < tries:
			try++
		case !errors.Is(err, errBusy):
			return snapshots.ID{}, false, fmt.Errorf("publish snapshot: %w", err)
		}
		if err := pause(ctx); err != nil {
			return snapshots.ID{}, false, fmt.Errorf("publish snapshot: %w", err)
		}
	}
}

// publication is one call of Publish.
type publication struct {
	*Store
	waits time.Time              // since when it waits for other writers; zero if it does not
	taken map[uint64]int         // how often the name of a revision was found to be taken
	mine  map[types.UID]bool     // the manifests that it made
	seen  map[types.UID]sighting // those of others that are staged
}

// sighting is what was last seen of a staged manifest.
type sighting struct {
	chunks int
	since  time.Time
}

// try publishes unless another writer is about to. The first try looks only at what the Store remembers.
func (p *publication) try(ctx context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	if m := p.past.recall(); m != nil {
		if next, ok := p.onMemory(ctx, m, d); ok {
			return p.follow(ctx, m, next, d)
		}
	}
	items, version, err := p.listItems(ctx, everything)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	l := newListing(p.name, items)
	if err := p.divide(&l); err != nil {
		return snapshots.ID{}, false, err
	}
	if l.delivery != "" {
		return snapshots.ID{}, false, errDelivered(l.delivery)
	}
	head, err := p.verifiedHead(ctx, l)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if p.mine[l.head().uid] { // the answer that it is complete was lost
		return head.ID, true, nil
	}
	next, changed, err := sequence.Next(head, d)
	if err != nil || !changed {
		return head.ID, false, err
	}
	next = p.numbered(l, head, next, d)
	if p.busy(l, time.Now()) {
		return snapshots.ID{}, false, errBusy
	}
	if err := p.sweep(ctx, l); err != nil {
		return snapshots.ID{}, false, err
	}
	if err := p.beside(ctx, l, d.Time); err != nil {
		return snapshots.ID{}, false, err
	}
	signers, err := p.signing.signers()
	if err != nil {
		return snapshots.ID{}, false, err
	}
	return p.follow(ctx, newMemory(p.name, items, version, signers), next, d)
}

// onMemory returns the snapshot that follows what a memory has, if there is nothing else to do. Anything unusual, and
// every reason not to publish, is decided by what the store has now.
func (p *publication) onMemory(ctx context.Context, m *memory, d snapshots.Draft) (snapshots.Snapshot, bool) {
	l, err := m.listing(p.Store)
	if err != nil || l.delivery != "" || !l.status || l.head().id.IsZero() || len(l.staged)+len(l.intruding)+len(l.orphans()) > 0 {
		return snapshots.Snapshot{}, false
	}
	head, err := p.verifiedHead(ctx, l)
	if err != nil {
		return snapshots.Snapshot{}, false
	}
	next, changed, err := sequence.Next(head, d)
	if err != nil || !changed {
		return snapshots.Snapshot{}, false
	}
	return p.numbered(l, head, next, d), true
}

// numbered gives a snapshot the revision that is free.
func (p *publication) numbered(l listing, head sequence.Head, next snapshots.Snapshot, d snapshots.Draft) snapshots.Snapshot {
	if revision := p.free(l, next.ID().Revision); revision != next.ID().Revision {
		return d.Number(revision, head.ID)
	}
	return next
}

// follow writes a snapshot on top of what a memory has, and keeps the memory for the next publish.
func (p *publication) follow(ctx context.Context, m *memory, next snapshots.Snapshot, d snapshots.Draft) (snapshots.ID, bool, error) {
	f := m.follow(ctx, p.Store)
	if f != nil {
		defer f.end()
	}
	sight, err := p.store(ctx, f, next, d.Companions)
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			p.taken[next.ID().Revision]++
		}
		return snapshots.ID{}, false, fmt.Errorf("write %s: %w", next.ID(), err)
	}
	p.remember(sequence.HeadOf(next), sight)
	return next.ID(), true, nil
}

// maxSkip is how far ahead a snapshot without an accepted signature, or one that was deleted, may be to still be made
// way for. Otherwise one with the last possible revision would leave no room for more snapshots.
const maxSkip = 1_000_000

// free returns the first revision, from the given one on, that comes after all that are or were there, also
// those without an accepted signature, and whose name no object has that is no snapshot at all.
func (p *publication) free(l listing, from uint64) uint64 {
	revision := from
	for _, s := range l.refused {
		if s.id.Revision >= revision && s.id.Revision-from < maxSkip {
			revision = s.id.Revision + 1
		}
	}
	if l.given >= revision && l.given-from < maxSkip {
		revision = l.given + 1
	}
	for p.taken[revision] > 1 && !l.names(revision) {
		revision++
	}
	return revision
}

// names reports whether there is a manifest of a revision, in whatever state.
func (l listing) names(revision uint64) bool {
	return slices.ContainsFunc(slices.Concat(l.complete, l.staged, l.intruding, l.partial), func(s stored) bool { return s.id.Revision == revision })
}

// beside creates the objects that belong to a store if they are missing: the status, and with the first
// snapshot the empty channel. So readers, which change both, need no permission to create ConfigMaps. It does
// not replace a channel that is gone later: a person deleted it, and a person has to decide about that.
func (p *publication) beside(ctx context.Context, l listing, now time.Time) error {
	var missing []*corev1.ConfigMap
	if len(l.complete)+len(l.refused) == 0 {
		fields, err := fieldsOf(channel.Channel{})
		if err != nil {
			return err
		}
		channel := newChannel(p.name, fields)
		if err := p.signChannel(channel, now); err != nil {
			return fmt.Errorf("write channel: %w", err)
		}
		missing = append(missing, channel)
	}
	if !l.status {
		missing = append(missing, part(p.name, statusName(p.name), partStatus))
	}
	for _, o := range missing {
		if _, err := p.create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// busy reports whether another writer may still be at work on what is staged. The wait has an end,
// whatever is added to it, and however often it is made anew.
func (p *publication) busy(l listing, now time.Time) bool {
	if p.waits.IsZero() {
		p.waits = now
	}
	if now.Sub(p.waits) >= longest*p.patience {
		return false
	}
	busy := false
	for _, staged := range l.staged {
		if p.mine[staged.uid] {
			continue
		}
		chunks := len(l.chunks[staged.uid])
		last, known := p.seen[staged.uid]
		if !known || last.chunks != chunks {
			last = sighting{chunks, now}
			p.seen[staged.uid] = last
		}
		// The clock is that of the API server. If ours is ahead, an object looks older than it is; its
		// writer then finds that it is gone, and starts again.
		old := !staged.created.IsZero() && now.Sub(staged.created) >= longest*p.patience
		busy = busy || (!old && now.Sub(last.since) < p.patience)
	}
	return busy
}

// sweep removes what is staged, the manifests first, and chunks without a manifest.
func (p *publication) sweep(ctx context.Context, l listing) error {
	chunks := l.orphans()
	for _, staged := range slices.Concat(l.staged, l.intruding) {
		seen := &metav1.Preconditions{UID: &staged.uid, ResourceVersion: &staged.version}
		if err := p.Store.remove(ctx, staged.name, seen); err != nil {
			return err
		}
		p.log.Info("removed a half-written snapshot", "store", p.String(), "snapshot", staged.id)
		if err := p.removeSecrets(ctx, staged); err != nil {
			return err
		}
		chunks = append(chunks, l.chunks[staged.uid]...)
	}
	return p.removeAll(ctx, chunks)
}

// store writes a snapshot: the manifest that claims the revision, the chunks, and
// last the label that makes them a snapshot. It returns what they look like, see sightOf. The follower, if there is one,
// brings its memory up to date, which the Store then has.
func (p *publication) store(ctx context.Context, f *follower, next snapshots.Snapshot, companions []snapshots.Companion) (string, error) {
	files, err := p.compressor.pack(next)
	if err != nil {
		return "", err
	}
	attempt := newAttempt()
	d := newDraft(p.name, next, files, attempt)
	if err := p.signing.sign(d.manifest, stateSnapshot(p.String(), next.Manifest, files.manifest)); err != nil {
		return "", err
	}
	secrets := newCompanions(p.name, next.ID(), companions, attempt)
	if len(secrets) > 0 {
		var names []string
		for _, s := range secrets {
			names = append(names, s.Name)
		}
		d.manifest.Annotations[secretsAnnotation] = strings.Join(names, " ")
	}
	manifest, err := p.create(ctx, d.manifest)
	if err != nil {
		return "", err
	}
	p.mine[manifest.UID] = true
	// The parent must still be the newest. The name may be free because others published since, and deleted
	// what they published. From now on, the claim prevents that.
	l, followed, err := p.asOf(ctx, f, manifest)
	if err != nil {
		return "", err
	}
	revision := next.ID().Revision
	if l.head().id != next.Manifest.Spec.Parent || followed && p.free(l, revision) != revision {
		return "", errMoved
	}
	var pieces []string
	var written []metav1.ObjectMeta
	for _, chunk := range d.chunks {
		made, err := p.create(ctx, ownedBy(chunk, manifest.Name, manifest.UID))
		if err != nil {
			return "", err
		}
		pieces = append(pieces, pieceSight(made.Name, made.UID))
		written = append(written, made.ObjectMeta)
	}
	for _, secret := range secrets {
		if err := p.createSecret(ctx, secret, manifest.Name, manifest.UID); err != nil {
			return "", err
		}
	}
	if manifest, err = p.complete(ctx, manifest); err != nil {
		return "", err
	}
	if err := p.note(ctx, next.ID()); err != nil {
		return "", err
	}
	if followed {
		for _, o := range append(written, manifest.ObjectMeta) { // the events about them will say so again
			f.see(o, false)
		}
		p.past.memorize(f.memory)
	}
	return sightOf(manifest.UID, manifest.ResourceVersion, pieces), nil
}

// note writes down which snapshot was published last. That it is published does not depend on it.
func (p *publication) note(ctx context.Context, id snapshots.ID) error {
	if err := p.step("before note " + id.String()); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, newestAnnotation, id)
	if _, err := p.core.ConfigMaps(p.namespace).Patch(ctx, statusName(p.name), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		p.log.Warn("if this snapshot is deleted by hand before the next one is published, that one gets the same number",
			"store", p.String(), "snapshot", id.String(), "err", because(ctx, err))
	}
	return p.step("after note " + id.String())
}

// verifiedHead returns the newest snapshot after verifying it, unless this Store did so before and its
// ConfigMaps look as they did then. They are immutable, but anybody may delete or replace them.
func (s *Store) verifiedHead(ctx context.Context, l listing) (sequence.Head, error) {
	newest := l.head().id
	if newest.IsZero() {
		return sequence.Head{}, nil
	}
	if ours, err := s.ours(l.head()); err != nil || !ours {
		return sequence.Head{ID: newest}, err
	}
	if known, sight := s.known(); known.ID == newest && sight == l.sight() {
		return known, nil
	}
	head, err := s.Get(ctx, newest)
	if errors.Is(err, snapshots.ErrNotFound) {
		return sequence.Head{}, fmt.Errorf("%w: %w", errMoved, err)
	}
	if errors.Is(err, snapshots.ErrCorrupt) {
		s.log.Warn("the newest snapshot is corrupt, publishing the next one on top of it", "store", s.String(), "snapshot", newest.String(), "err", err)
		return sequence.Head{ID: newest}, nil
	}
	if err != nil {
		return sequence.Head{}, err
	}
	return s.remember(sequence.HeadOf(head), l.sight()), nil
}

// Delete removes snapshots. It skips those that are not there. If the newest is among them, it refuses
// and removes nothing.
func (s *Store) Delete(ctx context.Context, ids ...snapshots.ID) error {
	l, err := s.list(ctx, everything)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id == l.head().id && !id.IsZero() {
			return fmt.Errorf("delete snapshot %s: it is the newest", id)
		}
	}
	for _, id := range ids {
		found, ok := l.find(id)
		if !ok {
			continue
		}
		// The manifest goes first: chunks without a manifest mean nothing.
		err := s.remove(ctx, found.name, &metav1.Preconditions{UID: &found.uid})
		if err == nil || apierrors.IsConflict(err) { // another one bears the name
			err = errors.Join(s.removeAll(ctx, append(l.chunks[found.uid], l.arrived[id]...)), s.removeSecrets(ctx, found))
		}
		if err != nil {
			return fmt.Errorf("delete snapshot %s: %w", id, err)
		}
	}
	if err := s.removeAll(ctx, l.strays()); err != nil {
		return fmt.Errorf("delete what was delivered in part: %w", err)
	}
	return nil
}

func (s *Store) removeAll(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := s.remove(ctx, name, nil); err != nil {
			return err
		}
	}
	return nil
}

// overtaken reports whether a write failed because of another writer, so that reading the store again
// helps.
func overtaken(err error) bool {
	return errors.Is(err, errMoved) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// pause waits before the store is looked at again.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(interval):
		return nil
	}
}

// newAttempt returns a word that no other writer uses.
func newAttempt() string {
	var random [4]byte
	rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// createSecret creates a Secret that the API server deletes when its manifest is deleted.
func (s *Store) createSecret(ctx context.Context, o *corev1.Secret, manifest string, uid types.UID) error {
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: manifest, UID: uid}}
	return s.write(ctx, "create "+o.Name, func() error {
		_, err := s.core.Secrets(s.namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

// removeSecrets deletes the Secrets of a manifest that is gone. If the process is killed before, the API server
// collects them, since their owner is gone.
//
// Everybody who may create ConfigMaps can write any names into a manifest's annotation. So the names are only
// hints, and the owner of each Secret decides.
func (s *Store) removeSecrets(ctx context.Context, manifest stored) error {
	for _, name := range manifest.companions() {
		err := s.write(ctx, "delete "+name, func() error {
			secret, err := s.core.Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && s.isCompanion(secret, manifest.name, manifest.uid) {
				err = s.core.Secrets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
				})
			}
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
				return nil // what is left, the API server collects
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
