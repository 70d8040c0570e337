package gitstore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func id(revision uint64, short string) snapshots.ID {
	return snapshots.ID{Revision: revision, Short: (short + "0000000000")[:10]}
}

func hash(c string) plumbing.Hash { return plumbing.ComputeHash(plumbing.BlobObject, []byte(c)) }

func TestPickTakesOnlyWhatIsOurs(t *testing.T) {
	r := names("edge").pick(map[string]plumbing.Hash{
		"refs/heads/edge":                   hash("tip"),
		"refs/heads/edge-channel":           hash("channel"),
		"refs/heads/main":                   hash("another branch"),
		"refs/tags/edge/r000001-aaaaaaaaaa": hash("first"),
		"refs/tags/edge/r000002-bbbbbbbbbb": hash("tip"),
		"refs/tags/edge/v1.0":               hash("a tag of people"),
		"refs/tags/edge/r2-bbbbbbbbbb":      hash("no ID"),
		"refs/tags/main/r000003-cccccccccc": hash("another store"),
		"refs/tags/r000004-dddddddddd":      hash("at the top"),
	})
	if r.branch != hash("tip") || r.channel != hash("channel") {
		t.Errorf("branch %s, channel %s", r.branch, r.channel)
	}
	one, two := id(1, "aaaaaaaaaa"), id(2, "bbbbbbbbbb")
	if got, want := r.ids(two), []snapshots.ID{one, two}; !slices.Equal(got, want) {
		t.Errorf("ids = %v, want %v", got, want)
	}
	if head, ok := r.tagged(); !ok || head != two {
		t.Errorf("tagged = %v, %v", head, ok)
	}
	// A writer was stopped between the branch and the tag.
	r.branch = hash("untagged")
	three := id(3, "cccccccccc")
	if head, ok := r.tagged(); ok {
		t.Errorf("tagged = %v", head)
	}
	if got, want := r.ids(three), []snapshots.ID{one, two, three}; !slices.Equal(got, want) {
		t.Errorf("ids = %v, want %v", got, want)
	}
}

func TestTagsThatAreNewer(t *testing.T) {
	one, two, other, nine := id(1, "a"), id(2, "b"), id(2, "c"), id(9, "f")
	for name, test := range map[string]struct {
		tags []snapshots.ID
		head snapshots.ID
		want []snapshots.ID
	}{
		"empty":                       {},
		"the first":                   {head: one},
		"as before":                   {tags: []snapshots.ID{one, two}, head: two},
		"its tag is missing":          {tags: []snapshots.ID{one}, head: two},
		"old tags were deleted":       {tags: []snapshots.ID{two}, head: two},
		"behind a tag":                {tags: []snapshots.ID{one, two}, head: one, want: []snapshots.ID{two}},
		"another of the revision":     {tags: []snapshots.ID{one, other}, head: two, want: []snapshots.ID{other}},
		"two tags of the revision":    {tags: []snapshots.ID{two, other}, head: two, want: []snapshots.ID{other}},
		"gone, but there are tags":    {tags: []snapshots.ID{two, one}, want: []snapshots.ID{one, two}},
		"a tag that nothing leads to": {tags: []snapshots.ID{one, nine}, head: two, want: []snapshots.ID{nine}},
	} {
		r := refs{tags: map[snapshots.ID]plumbing.Hash{}}
		for _, tag := range test.tags {
			r.tags[tag] = hash(tag.String())
		}
		if got := r.newer(test.head); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// review is a repository in which the compiler writes to edge, and people merge that into live, in a clone with
// git.
type review struct {
	repository
	t        *testing.T
	clone    string
	compiler *Store
	pusher   *Store
	ids      []snapshots.ID
}

// newReview returns a review in which the first snapshot is published, and live begins with it.
func newReview(t *testing.T) *review {
	t.Helper()
	r := &review{repository: newRepository(t), t: t, clone: filepath.Join(t.TempDir(), "clone")}
	r.compiler, r.pusher = r.open(t), r.open(t, r.follows)
	runGit(t, ".", nil, "clone", "--quiet", r.path, r.clone)
	r.publish("a")
	r.people("push", "--quiet", "origin", "origin/edge:refs/heads/live")
	r.people("switch", "--quiet", "--track", "origin/live")
	return r
}

func (r *review) follows(o *Options) { o.Branch, o.Review = "live", "edge" }

// publish publishes snapshots, as the compiler does.
func (r *review) publish(backends ...string) {
	r.t.Helper()
	for _, backend := range backends {
		r.ids = append(r.ids, publish(r.t, r.compiler, storetest.Draft(backend)))
	}
	r.people("fetch", "--quiet", "--tags")
}

// people run git in the clone.
func (r *review) people(args ...string) string {
	r.t.Helper()
	return runGit(r.t, r.clone, nil, args...)
}

// cannot runs a git command that must fail with a conflict.
func (r *review) cannot(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Dir = r.clone
	if out, err := cmd.CombinedOutput(); err == nil {
		r.t.Errorf("git %s works:\n%s", strings.Join(args, " "), out)
	}
}

// take makes the work tree equal to what the compiler published last, as the documentation says.
func (r *review) take() {
	r.t.Helper()
	r.people("restore", "--source=origin/edge", "--staged", "--worktree", ".")
	r.people("commit", "--quiet", "-m", "take what the compiler published")
}

// runs pushes live. It checks that the n-th snapshot should run, can be read, and equals the published one.
// Later snapshots must not be visible.
func (r *review) runs(n int) {
	r.t.Helper()
	r.people("push", "--quiet", "origin", "HEAD:live")
	for _, s := range []*Store{r.pusher, r.open(r.t, r.follows)} {
		v, err := s.View(r.t.Context())
		if err != nil || !slices.Equal(v.IDs, r.ids[:n]) || !v.HeadOnly {
			r.t.Errorf("view %v, %v, want %v", v.IDs, err, r.ids[:n])
		}
		if want := channel.Want(v, time.Unix(0, 0)); want.Hold || want.ID != r.ids[n-1] {
			r.t.Errorf("wanted is %+v", want)
		}
		for _, id := range r.ids[:n] {
			if snapshot, err := s.Get(r.t.Context(), id); err != nil || snapshot.ID() != id {
				r.t.Errorf("get %s: %v", id, err)
			}
		}
	}
}

// held pushes live, and checks that it is held, with the reason.
func (r *review) held(want string) {
	r.t.Helper()
	r.people("push", "--quiet", "origin", "HEAD:live")
	for _, s := range []*Store{r.pusher, r.open(r.t, r.follows)} {
		v, err := s.View(r.t.Context())
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "of somebody <some@body>: ") {
			r.t.Errorf("view %v, %v, want %s", v.IDs, err, want)
		}
	}
}

// In whatever way people merge, what the compiler published runs, with its name.
func TestWaysToMerge(t *testing.T) {
	t.Parallel()
	for name, merge := range map[string]func(r *review){
		"fast-forward": func(r *review) { r.people("merge", "--quiet", "--ff-only", "origin/edge") },
		"merge":        func(r *review) { r.people("merge", "--quiet", "--no-ff", "-m", "release", "origin/edge") },
		"merge a tag": func(r *review) {
			r.people("merge", "--quiet", "--no-ff", "-m", "release", "edge/"+r.ids[len(r.ids)-1].String())
		},
		"take": func(r *review) {
			r.people("merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", "origin/edge")
			r.take()
		},
		"rebase": func(r *review) { r.people("cherry-pick", "live..origin/edge") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReview(t)
			r.runs(1)
			r.publish("b", "c") // the second one is not merged
			r.runs(1)
			merge(r)
			r.runs(3)
			r.publish("d")
			if name == "rebase" {
				return // git makes another history of it, see the next test
			}
			merge(r)
			r.runs(4)
			r.publish("a") // the former content again is a new snapshot
			merge(r)
			r.runs(5)
		})
	}
}

// A squash loses the history of merges. It works once. The next merge has conflicts, which are resolved by
// taking what was published.
func TestSquash(t *testing.T) {
	t.Parallel()
	r := newReview(t)
	r.publish("b", "c")
	r.people("merge", "--quiet", "--squash", "origin/edge")
	r.people("commit", "--quiet", "-m", "release (#1)")
	r.runs(3)
	r.publish("d")
	r.cannot("merge", "--squash", "origin/edge")
	r.take()
	r.runs(4)
}

// Reverting a merge goes back. The next merge has conflicts, since the reverted commits are merged already.
func TestRevertedMerge(t *testing.T) {
	t.Parallel()
	r := newReview(t)
	r.publish("b")
	r.people("merge", "--quiet", "--no-ff", "-m", "release", "origin/edge")
	r.runs(2)
	r.people("revert", "--no-edit", "-m", "1", "HEAD")
	r.runs(1)
	r.publish("c")
	r.cannot("merge", "origin/edge")
	r.people("merge", "--abort")
	r.people("merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", "origin/edge")
	r.take()
	r.runs(3)
	// People may set their branch back by force.
	r.people("push", "--quiet", "--force", "origin", "edge/"+r.ids[1].String()+":live")
	if v, err := r.pusher.View(t.Context()); err != nil || v.Head() != r.ids[1] {
		t.Errorf("view %v, %v", v.IDs, err)
	}
}

// Changes that people make in a pull request were never validated, so the branch is held. The same holds for
// anything that is not a snapshot of the compiler. Once that is reverted, everything goes on.
func TestHandEdits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, from, to, want string }{
		"configuration": {"haproxy.cfg", "maxconn 100", "maxconn 200", "haproxy.cfg has sha256"},
		"manifest":      {"snapshot.yaml", "compilerVersion: v0.1.0", "compilerVersion: v0.1.1", "its files are not those of r000002-"},
		"revision":      {"snapshot.yaml", "r000002", "r000009", "snapshot is corrupt"},
		"a file more":   {"README.md", "", "how to release", "README.md is not in the manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReview(t)
			r.publish("b")
			r.people("merge", "--quiet", "--no-ff", "-m", "release", "origin/edge")
			path := filepath.Join(r.clone, test.file)
			data, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			text := strings.Replace(string(data), test.from, test.to, -1)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			r.people("add", test.file)
			r.people("commit", "--quiet", "-m", "tune")
			r.held(test.want)
			// What was read before is still available.
			if _, err := r.pusher.Get(t.Context(), r.ids[0]); err != nil {
				t.Error(err)
			}
			r.people("revert", "--no-edit", "HEAD")
			r.runs(2)
		})
	}
}

// Publishing writes only to the compiler's branch. Only merged snapshots can be deleted. The channel belongs to
// the branch that is followed.
func TestWritingWhereItIsReviewed(t *testing.T) {
	t.Parallel()
	r := newReview(t)
	r.publish("b", "c", "d")
	r.people("merge", "--quiet", "--ff-only", "edge/"+r.ids[2].String())
	r.runs(3)
	ctx := t.Context()
	if id, published, err := r.pusher.Publish(ctx, storetest.Draft("e")); !errors.Is(err, errReviewed) || process.Hint(err) == "" {
		t.Errorf("publish: %s, %v, %v", id, published, err)
	}
	if err := r.pusher.Delete(ctx, r.ids[2]); err == nil {
		t.Error("the newest is deleted")
	}
	if err := r.pusher.Delete(ctx, r.ids[0], r.ids[3]); err != nil {
		t.Error(err)
	}
	r.people("fetch", "--quiet", "--prune", "--prune-tags", "origin")
	var want []string
	for _, id := range r.ids[1:] {
		want = append(want, "edge/"+id.String())
	}
	if tags := r.git(t, "tag"); tags != strings.Join(want, "\n") {
		t.Errorf("the tags are\n%s", tags)
	}
	pin := func(id snapshots.ID) channel.Decision {
		t.Helper()
		err := r.pusher.UpdateChannel(ctx, "pin", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Pinned(channel.Pin{Snapshot: id})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.pusher.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return channel.Want(v, time.Unix(1e9, 0))
	}
	if d := pin(r.ids[1]); d.ID != r.ids[1] {
		t.Errorf("pinned: %+v", d)
	}
	if d := pin(r.ids[3]); !d.Hold {
		t.Errorf("what nobody merged is pinned: %+v", d)
	}
	if got := r.git(t, "for-each-ref", "--format=%(refname)", "refs/heads"); got != "refs/heads/edge\nrefs/heads/live\nrefs/heads/live-channel" {
		t.Errorf("the branches are\n%s", got)
	}
}

// Before the first merge the store is empty. A branch that existed and is gone is an error.
func TestBranchesThatAreNotThere(t *testing.T) {
	t.Parallel()
	r := newReview(t)
	r.runs(1)
	r.git(t, "update-ref", "-d", "refs/heads/live")
	if v, err := r.pusher.View(t.Context()); !errors.Is(err, ErrRewound) {
		t.Errorf("view %v, %v", v.IDs, err)
	}
	if v, err := r.open(t, r.follows).View(t.Context()); err != nil || len(v.IDs) > 0 {
		t.Errorf("view %v, %v", v.IDs, err)
	}
	// A compiler that was stopped before the tag has still published.
	r.git(t, "update-ref", "refs/heads/live", "refs/heads/edge")
	r.git(t, "update-ref", "-d", "refs/tags/edge/"+r.ids[0].String())
	fresh := r.open(t, r.follows)
	if v, err := fresh.View(t.Context()); err != nil || v.Head() != r.ids[0] {
		t.Errorf("view %v, %v", v.IDs, err)
	}
	if _, err := fresh.Get(t.Context(), r.ids[0]); err != nil {
		t.Error(err)
	}
	// Without the branch and the tag, the origin of the snapshot is unknown.
	r.git(t, "update-ref", "-d", "refs/heads/edge")
	if v, err := r.open(t, r.follows).View(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("view %v, %v", v.IDs, err)
	}
}

// The snapshot must be signed, and the merge need not be: the host decides who may merge.
func TestSignaturesWhereItIsReviewed(t *testing.T) {
	t.Parallel()
	s := newSigning(t)
	signed := publish(t, s.open(t, s.signs), storetest.Draft("a"))
	unsigned := publish(t, s.open(t), storetest.Draft("b"))
	for _, test := range []struct {
		id   snapshots.ID
		want error
	}{{signed, nil}, {unsigned, snapshots.ErrUntrusted}} {
		s.git(t, "update-ref", "refs/heads/live", s.git(t, "commit-tree", "-m", "merge", "edge/"+test.id.String()+"^{tree}"))
		reader := s.open(t, s.reads, func(o *Options) { o.Branch, o.Review = "live", "edge" })
		if v, err := reader.View(t.Context()); err != nil || v.Head() != test.id {
			t.Errorf("view %v, %v", v.IDs, err)
		}
		if _, err := reader.Get(t.Context(), test.id); !errors.Is(err, test.want) {
			t.Errorf("get %s: %v", test.id, err)
		}
	}
}
