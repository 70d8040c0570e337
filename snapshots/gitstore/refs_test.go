package gitstore

import (
	"slices"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/hapsnap/hapsnap/snapshots"
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
