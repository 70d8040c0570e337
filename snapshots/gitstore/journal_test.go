package gitstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The authors of a source commit become those of the snapshot's commit, as far as git allows their names.
func TestPersons(t *testing.T) {
	t.Parallel()
	ann, bob := channel.Person{Name: "Ann Example", Email: "ann@example.com"}, channel.Person{Name: "Doe, Bob", Email: "bob@example.com"}
	for text, want := range map[string][]channel.Person{
		"":                              nil,
		"Ann":                           nil,
		"Ann Example <ann@example.com>": {ann},
		"Ann Example <ann@example.com>, Doe, Bob <bob@example.com>": {ann, bob},
		"<ann@example.com>, Doe, Bob <bob@example.com>, Eve":        {bob},
	} {
		if got := persons(text); !slices.Equal(got, want) {
			t.Errorf("%q names %v, not %v", text, got, want)
		}
	}
	m := snapshots.Manifest{Provenance: snapshots.Provenance{Author: ann.String() + ", " + bob.String()}}
	if got := snapshotMessage("edge", m); strings.Count(got, "Co-authored-by: ") != 1 || !strings.Contains(got, "\nCo-authored-by: Doe, Bob <bob@example.com>\n") {
		t.Errorf("the message is %q", got)
	}
}
