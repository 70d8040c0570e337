package configmapstore

import (
	"errors"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestRewoundTellsWhatCameAfter(t *testing.T) {
	for name, test := range map[string]struct {
		before, now string
		rewound     bool
	}{
		"nothing seen":         {"", "", false},
		"the first":            {"", "a/7", false},
		"as it was":            {"a/7", "a/7", false},
		"edited":               {"a/7", "a/8", false},
		"edited, more digits":  {"a/9", "a/10", false},
		"edited, no number":    {"a/x", "a/w", false},
		"gone":                 {"a/7", "", true},
		"made again":           {"a/7", "b/8", true},
		"restored with etcd":   {"a/10", "a/9", true},
		"made again, restored": {"a/7", "b/6", true},
	} {
		if why := rewound(test.before, test.now); (why != "") != test.rewound {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// Tools that apply the channel, also with what it said before, are believed.
func TestChannelsThatAreApplied(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	paused := "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nmetadata: {name: edge}\nspec: {pause: {by: ops}}\n"
	resumed := "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nmetadata: {name: edge}\nspec: {}\n"
	s := p.open()
	var seen channel.Seen
	for _, text := range []string{resumed, paused, resumed, paused} {
		p.setChannel([]byte(text))
		v, err := s.View(t.Context())
		if err != nil || (v.Channel.Spec.Pause != nil) != (text == paused) || v.Seen == seen {
			t.Errorf("applied %q: %+v, %v", text, v.Channel.Spec, err)
		}
		seen = v.Seen
	}
	restarted := p.open()
	seen.Channel = "another/1"
	restarted.Remember(seen)
	if _, err := restarted.View(t.Context()); !errors.Is(err, channel.ErrRewound) {
		t.Errorf("made again: %v", err)
	}
}
