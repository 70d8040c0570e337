package gitstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// The prefixes of tags fit all that are not older, of any length, and few others.
func TestPrefixesOfTagsThatAreNotOlder(t *testing.T) {
	t.Parallel()
	revisions := []uint64{1, 9, 10, 99, 100, 109, 4321, 4322, 99_999, 100_000, 543_210, 999_999, 1_000_000, 2_345_678, 54_321_000, snapshots.MaxRevision}
	for _, since := range revisions {
		prefixes := notOlder("refs/tags/edge/", since)
		if len(prefixes) > 55 {
			t.Errorf("since %d there are %d prefixes", since, len(prefixes))
		}
		for _, other := range append(revisions, since-1, since+1, since*10) {
			name := "refs/tags/edge/" + id(other, "a").String()
			fits := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if want := other >= since; fits != want && (want || since < 100_000) {
				t.Errorf("since %d, %s fits: %t", since, name, fits)
			}
		}
	}
}

func TestListingsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const start, hash = "000eversion 2\n000cagent=g\n0000", "0123456789012345678901234567890123456789"
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	got, err := readLsRefs([]byte(start + line(hash+" refs/heads/edge\n") + line(hash+" HEAD symref-target:refs/heads/edge\n") + "0000"))
	if err != nil || len(got) != 2 || got["refs/heads/edge"].String() != hash || got["HEAD"].String() != hash {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{
		"", "0000", line(hash+" refs/heads/edge\x00caps\n") + "0000", "000eversion 1\n0000", start, start + line(hash+" refs/heads/edge\n"),
		start + line("refs/heads/edge\n") + "0000", start + line("01 refs/heads/edge\n") + "0000", start + "00",
	} {
		if got, err := readLsRefs([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// Whatever happened to the branch while nobody looked, and whether the writer has seen it before, no revision is given
// to two snapshots.
func TestBranchMovedByHand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(r repository, ids []snapshots.ID)
		want   error
		next   uint64
	}{
		"the branch is gone": {func(r repository, _ []snapshots.ID) { r.git(t, "update-ref", "-d", "refs/heads/edge") }, ErrRewound, 0},
		"the branch is set back": {func(r repository, ids []snapshots.ID) {
			r.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+ids[1].String())
		}, ErrRewound, 0},
		"its tag is gone": {func(r repository, ids []snapshots.ID) {
			r.git(t, "update-ref", "-d", "refs/tags/edge/"+ids[3].String())
		}, nil, 5},
		"older tags are gone": {func(r repository, ids []snapshots.ID) {
			r.git(t, "update-ref", "-d", "refs/tags/edge/"+ids[2].String())
		}, nil, 5},
		"somebody commits": {func(r repository, _ []snapshots.ID) {
			r.git(t, "update-ref", "refs/heads/edge", r.commitFile(t, "edge", "README.md", "x"))
		}, ErrForeign, 0},
		"another writer publishes": {func(r repository, _ []snapshots.ID) { publish(t, r.open(t), storetest.Draft("other")) }, nil, 6},
		"another writer publishes much, and deletes what is old": {func(r repository, ids []snapshots.ID) {
			s := r.open(t)
			for i := range 12 {
				ids = append(ids, publish(t, s, storetest.Draft(fmt.Sprint("other", i))))
			}
			if err := s.Delete(t.Context(), ids[:len(ids)-1]...); err != nil {
				t.Error(err)
			}
		}, nil, 17},
		"the repository is made anew": {func(r repository, _ []snapshots.ID) {
			r.git(t, "update-ref", "-d", "refs/heads/edge")
			for tag := range strings.FieldsSeq(r.git(t, "for-each-ref", "--format=%(refname)", "refs/tags")) {
				r.git(t, "update-ref", "-d", tag)
			}
		}, ErrRewound, 0},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, packed %t", name, packed), func(t *testing.T) {
				t.Parallel()
				r := newRepository(t)
				s := r.open(t)
				var ids []snapshots.ID
				for i := range 4 {
					ids = append(ids, publish(t, s, storetest.Draft(fmt.Sprint("web", i))))
				}
				if packed {
					r.git(t, "pack-refs", "--all")
				}
				test.change(r, ids)
				stores := []*Store{s}
				if name != "the repository is made anew" { // only who has seen it knows
					stores = []*Store{r.open(t), s}
				}
				for _, s := range stores {
					id, _, err := s.Publish(t.Context(), storetest.Draft("next"))
					if !errors.Is(err, test.want) || id.Revision != test.next {
						t.Errorf("published %s, %v, want revision %d, %v", id, err, test.next, test.want)
					}
				}
			})
		}
	}
}
