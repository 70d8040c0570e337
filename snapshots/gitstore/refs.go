package gitstore

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// names are the references of a store whose branch is this one.
type names string

func (n names) branch() plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(string(n))
}

func (n names) channel() plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(string(n) + "-channel")
}

func (n names) tag(id snapshots.ID) plumbing.ReferenceName {
	return plumbing.NewTagReferenceName(string(n) + "/" + id.String())
}

// refs is what one listing of the repository says of a store.
type refs struct {
	branch, channel plumbing.Hash // zero: there is none
	review          plumbing.Hash // of the branch that people merge from
	tags            map[snapshots.ID]plumbing.Hash
	all             map[snapshots.ID]plumbing.Hash // tags, with those that were dropped
}

// pick takes what is the store's from a listing. Other references, also tags
// in our folder that are not named like a snapshot, are people's own.
func (n names) pick(listing map[string]plumbing.Hash) refs {
	r := refs{
		branch:  listing[n.branch().String()],
		channel: listing[n.channel().String()],
		tags:    map[snapshots.ID]plumbing.Hash{},
	}
	folder := n.tag(snapshots.ID{}).String()
	for name, hash := range listing {
		if short, ok := strings.CutPrefix(name, folder); ok {
			if id, err := snapshots.ParseID(short); err == nil {
				r.tags[id] = hash
			}
		}
	}
	r.all = maps.Clone(r.tags)
	return r
}

// ids returns the names of all snapshots, ascending. The head is among them
// even if its tag is not there: a writer may have been stopped before it. Whatever else
// is not older than the head was given up, or its tag is not on the branch.
func (r refs) ids(head snapshots.ID) []snapshots.ID {
	ids := upTo(slices.Collect(maps.Keys(r.tags)), head)
	if _, tagged := r.tags[head]; !tagged && !head.IsZero() {
		ids = append(ids, head)
	}
	slices.SortFunc(ids, snapshots.ID.Compare)
	return ids
}

// tagCommits returns what the tags are on, in no order.
func (r refs) tagCommits() []plumbing.Hash { return slices.Collect(maps.Values(r.tags)) }

// tagged returns the snapshot whose tag is on the tip of the branch, if any.
func (r refs) tagged() (snapshots.ID, bool) {
	var newest snapshots.ID
	for id, hash := range r.tags {
		if hash == r.branch && id.Compare(newest) > 0 {
			newest = id
		}
	}
	return newest, !newest.IsZero()
}

// torn reports whether there is a newer tag than that on the tip of the branch: the branch
// went back, or it was read before a writer moved it, and the tag after that.
func (r refs) torn() bool {
	head, tagged := r.tagged()
	if !tagged && !r.branch.IsZero() {
		return false // the tip is newer than its tag, or not ours
	}
	for id := range r.tags {
		if id.Compare(head) > 0 {
			return true
		}
	}
	return false
}
