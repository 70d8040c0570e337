package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// meddler is a remote that counts its calls and lets a test meddle with them.
type meddler struct {
	remote
	lists, fetches, pushes int
	references             []int // how many each listing had
	packings               int
	packs                  []int // their sizes
	before, after          func(push int) error
	listed                 func(list int, refs map[string]plumbing.Hash)
}

// meddle puts a meddler between a store and its repository.
func meddle(s *Store) *meddler {
	pass := func(int) error { return nil }
	m := &meddler{remote: s.remote, before: pass, after: pass, listed: func(int, map[string]plumbing.Hash) {}}
	s.remote = m
	return m
}

func (m *meddler) List(ctx context.Context) (map[string]plumbing.Hash, error) {
	m.lists++
	refs, err := m.remote.List(ctx)
	m.references = append(m.references, len(refs))
	m.listed(m.lists, refs)
	return refs, err
}

func (m *meddler) Some(ctx context.Context, prefixes ...string) (map[string]plumbing.Hash, bool) {
	refs, ok := m.remote.Some(ctx, prefixes...)
	if ok {
		m.lists++
		m.references = append(m.references, len(refs))
		m.listed(m.lists, refs)
	}
	return refs, ok
}

func (m *meddler) Pack(ctx context.Context) error {
	m.packings++
	return m.remote.Pack(ctx)
}

func (m *meddler) Fetch(ctx context.Context, commit plumbing.Hash, depth int, into *filesystem.Storage) error {
	m.fetches++
	return m.remote.Fetch(ctx, commit, depth, into)
}

func (m *meddler) Push(ctx context.Context, updates []update, pack []byte) error {
	m.pushes++
	m.packs = append(m.packs, len(pack))
	if err := m.before(m.pushes); err != nil {
		return err
	}
	if err := m.remote.Push(ctx, updates, pack); err != nil {
		return err
	}
	return m.after(m.pushes)
}

var errLost = errors.New("connection reset by peer")

// first returns errLost for the first n calls.
func first(n int) func(int) error {
	return func(call int) error {
		if call <= n {
			return errLost
		}
		return nil
	}
}

// A listing during a push may have the former branch, and the tag of its new tip. That does not count as a
// rewound branch.
func TestListTornByAWriter(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	branch := s.names.branch().String()
	for _, before := range []snapshots.ID{{}, publish(t, s, storetest.Draft("one"))} {
		want := publish(t, s, storetest.Draft("after "+before.String()))
		reader := r.open(t)
		m := meddle(reader)
		m.listed = func(list int, refs map[string]plumbing.Hash) {
			if old, ok := refs[s.names.tag(before).String()]; list == 1 && ok {
				refs[branch] = old
			} else if list == 1 {
				delete(refs, branch)
			}
		}
		v, err := reader.View(t.Context())
		if err != nil || v.Head() != want || m.lists != 2 {
			t.Errorf("after %s: the head is %s, %v, after %d lists", before, v.Head(), err, m.lists)
		}
	}
}

// A push whose answer was lost has succeeded: nothing is pushed twice, and it counts as published.
func TestAnswerLostAfterPush(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	m := meddle(s)
	m.after = first(1)
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 || m.pushes != 1 {
		t.Errorf("published %s with %d pushes", id, m.pushes)
	}
	m.pushes = 0
	approvals := 0
	err := s.UpdateChannel(t.Context(), "approve", time.Unix(1e9, 0), func(c *channel.Channel) error {
		approvals++
		*c = c.Approve(id(1, "a"))
		return nil
	})
	if err != nil || approvals != 2 || m.pushes != 1 {
		t.Errorf("update channel: edited %d times, pushed %d times, %v", approvals, m.pushes, err)
	}
	if got := r.git(t, "rev-list", "--count", "edge"); got != "2" {
		t.Errorf("the branch has %s commits", got)
	}
}

// The answer is lost, and another writer builds on the push before the store looks.
func TestAnswerLostAndOvertaken(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	m := meddle(s)
	m.after = func(push int) error {
		publish(t, r.open(t), storetest.Draft("other"))
		return errLost
	}
	if id := publish(t, s, storetest.Draft("a")); id.Revision != 1 || m.pushes != 1 {
		t.Errorf("published %s with %d pushes", id, m.pushes)
	}
	m.after = func(int) error { return nil }
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 3 {
		t.Errorf("then published %s", id)
	}
}

// Between the listing and the push, others publish: first other content, then the same.
func TestOvertakenBeforePush(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	m := meddle(s)
	m.before = func(push int) error {
		d := storetest.Draft("other")
		if push == 2 {
			d = storetest.Draft("ours")
			d.Time = d.Time.Add(time.Hour)
		}
		publish(t, r.open(t), d)
		return nil
	}
	id, published, err := s.Publish(t.Context(), storetest.Draft("ours"))
	if err != nil || published || id.Revision != 2 || m.pushes != 2 {
		t.Errorf("%s, published %v with %d pushes, %v", id, published, m.pushes, err)
	}
	if got := r.git(t, "rev-list", "--count", "edge"); got != "2" {
		t.Errorf("the branch has %s commits", got)
	}
}

func TestPushesThatFailAreRepeatedWithinBounds(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	m := meddle(s)
	m.before = first(3)
	if id := publish(t, s, storetest.Draft("a")); id.Revision != 1 || m.pushes != 4 {
		t.Errorf("published %s with %d pushes", id, m.pushes)
	}
	m.pushes, m.before = 0, first(1000)
	_, published, err := s.Publish(t.Context(), storetest.Draft("b"))
	if !errors.Is(err, errLost) || published || m.pushes != tries {
		t.Errorf("published %v with %d pushes, %v", published, m.pushes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.pushes, m.before = 0, func(int) error { cancel(); return errLost }
	_, published, err = s.Publish(ctx, storetest.Draft("b"))
	if !errors.Is(err, context.Canceled) || published || m.pushes != 1 {
		t.Errorf("published %v with %d pushes, %v", published, m.pushes, err)
	}
}

// If a writer was killed between the branch and the tag, the tag is added later.
func TestMissingTagIsAdded(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"by the same content": "a", "by the next": "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, "receive.advertiseAtomic=false")
			doomed := r.open(t)
			doomed.step = func(point string) error {
				if point == "between references" {
					return errLost
				}
				return nil
			}
			if _, _, err := doomed.Publish(t.Context(), storetest.Draft("a")); !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			if tags := r.git(t, "tag", "--list"); tags != "" {
				t.Fatalf("tags %q", tags)
			}
			s := r.open(t)
			one := storetest.Draft("a").Number(1, snapshots.ID{}).ID()
			if v, err := s.View(t.Context()); err != nil || v.Head() != one {
				t.Errorf("view: %v, %v", v.IDs, err)
			}
			if _, err := r.open(t).Get(t.Context(), one); err != nil {
				t.Errorf("get: %v", err)
			}
			if _, _, err := s.Publish(t.Context(), storetest.Draft(next)); err != nil {
				t.Fatal(err)
			}
			if tags := r.git(t, "tag", "--list"); !strings.Contains(tags, "edge/"+one.String()) {
				t.Errorf("tags %q", tags)
			}
		})
	}
}

// If the repository does not answer, the call ends with its context. What the repository does later is found.
func TestRepositoryThatHangs(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	hang := filepath.Join(r.path, "hang")
	// The hook also ends by itself.
	hook := fmt.Sprintf("i=0\nwhile [ -e '%s' ] && [ $i -lt 3000 ]; do i=$((i+1)); sleep 0.01; done\n", hang)
	r.hook(t, "pre-receive", hook)
	if err := os.WriteFile(hang, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		_, _, err := s.Publish(ctx, storetest.Draft("b"))
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("publish does not return")
	}
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	if id, _, err := s.Publish(t.Context(), storetest.Draft("b")); err != nil || id.Revision != 2 {
		t.Errorf("publish again: %s, %v", id, err)
	}
}

// An answer that is not a repository's is an error, and not an empty list.
func TestRepositoryThatBreaks(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	if err := os.Remove(filepath.Join(r.path, "HEAD")); err != nil {
		t.Fatal(err)
	}
	if v, err := r.open(t).View(t.Context()); err == nil {
		t.Errorf("view: %+v", v)
	}
}

// A snapshot that was listed and then deleted before it was fetched is not found. The repository returns only
// what its references name.
func TestDeletedBetweenViewAndGet(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	writer, reader := r.open(t), r.open(t)
	id := publish(t, writer, storetest.Draft("a"))
	publish(t, writer, storetest.Draft("b"))
	if _, err := reader.View(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := writer.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Get(t.Context(), id); !errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
}
