package sequence

import (
	"errors"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func draft(paths ...string) snapshots.Draft {
	var d snapshots.Draft
	for _, p := range paths {
		d.Files = append(d.Files, snapshots.File{Path: p, Content: []byte("# " + p + "\n")})
	}
	return d
}

func TestNextNumbersSnapshots(t *testing.T) {
	first, changed, err := Next(Head{}, draft("haproxy.cfg"))
	if err != nil || !changed || first.ID().Revision != 1 || !first.Manifest.Spec.Parent.IsZero() {
		t.Fatalf("first = %v parent %v, changed %v, %v", first.ID(), first.Manifest.Spec.Parent, changed, err)
	}
	if err := first.Verify(); err != nil {
		t.Fatal(err)
	}
	if _, changed, err = Next(HeadOf(first), draft("haproxy.cfg")); changed || err != nil {
		t.Errorf("the same content again: changed %v, %v", changed, err)
	}
	second, changed, err := Next(HeadOf(first), draft("haproxy.cfg", "maps/host.map"))
	if err != nil || !changed || second.ID().Revision != 2 || second.Manifest.Spec.Parent != first.ID() {
		t.Errorf("second = %v parent %v, changed %v, %v", second.ID(), second.Manifest.Spec.Parent, changed, err)
	}
}

func TestNextFollowsTheHeadThatIsNamed(t *testing.T) {
	first, _, err := Next(Head{}, draft("haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	none, id := snapshots.ID{}, first.ID()
	for name, test := range map[string]struct {
		head  Head
		after *snapshots.ID
		moved bool
	}{
		"the first":             {Head{}, &none, false},
		"the next":              {HeadOf(first), &id, false},
		"whatever there is":     {HeadOf(first), nil, false},
		"no longer empty":       {HeadOf(first), &none, true},
		"not there, or deleted": {Head{}, &id, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := draft("haproxy.cfg", "maps/host.map")
			d.After = test.after
			_, changed, err := Next(test.head, d)
			if errors.Is(err, snapshots.ErrMoved) != test.moved || changed == test.moved {
				t.Errorf("changed %v, %v", changed, err)
			}
		})
	}
	same := draft("haproxy.cfg")
	same.After = &none
	if _, changed, err := Next(HeadOf(first), same); changed || err != nil {
		t.Errorf("what the store holds is no conflict: changed %v, %v", changed, err)
	}
}

func TestNextRefusesDrafts(t *testing.T) {
	empty := draft("haproxy.cfg")
	empty.Files[0].Content = nil
	for name, test := range map[string]struct {
		draft snapshots.Draft
		want  string
	}{
		"no files":         {draft(), "haproxy.cfg is missing or empty"},
		"no configuration": {draft("maps/host.map"), "haproxy.cfg is missing or empty"},
		"nothing in it":    {empty, "haproxy.cfg is missing or empty"},
		"twice":            {draft("haproxy.cfg", "haproxy.cfg"), "haproxy.cfg is there twice"},
		"the manifest":     {draft("haproxy.cfg", "snapshot.yaml"), `"snapshot.yaml": not a file name`},
		"upwards":          {draft("haproxy.cfg", "../escape"), `"../escape": not a file name`},
		"in the middle":    {draft("haproxy.cfg", "maps/../../escape.map"), "not a file name"},
		"absolute":         {draft("haproxy.cfg", "/etc/passwd"), "not a file name"},
		"line break":       {draft("haproxy.cfg", "maps/a\nb.map"), "not a file name"},
		"git's folder":     {draft("haproxy.cfg", ".git/config"), "not a file name"},
		"hidden below":     {draft("haproxy.cfg", "maps/.hidden"), "not a file name"},
		"folder in folder": {draft("haproxy.cfg", "maps/a/b.map"), "not a file name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, changed, err := Next(Head{}, test.draft)
			if !errors.Is(err, ErrRefused) || changed {
				t.Fatalf("changed %v, err %v", changed, err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %q, want %q in it", err, test.want)
			}
		})
	}
}

func TestEditTellsChanges(t *testing.T) {
	pin := func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: snapshots.ID{Revision: 1, Short: "0123456789"}})
		return nil
	}
	data, changed, err := Edit(channel.Channel{}, pin)
	if err != nil || !changed {
		t.Fatalf("pin: changed %v, %v", changed, err)
	}
	pinned, err := channel.Parse(data)
	if err != nil || pinned.Spec.Pin == nil {
		t.Fatalf("pinned = %+v, %v", pinned, err)
	}
	if _, changed, err := Edit(pinned, pin); changed || err != nil {
		t.Errorf("pin again: changed %v, %v", changed, err)
	}
	no := errors.New("no")
	if _, changed, err := Edit(pinned, func(*channel.Channel) error { return no }); changed || err != no {
		t.Errorf("refused edit: changed %v, %v", changed, err)
	}
	// A pin without a snapshot is not written.
	_, changed, err = Edit(channel.Channel{}, func(c *channel.Channel) error {
		c.Spec.Pin = &channel.Pin{}
		return nil
	})
	if changed || !errors.Is(err, channel.ErrInvalid) {
		t.Errorf("empty pin: changed %v, %v", changed, err)
	}
}
