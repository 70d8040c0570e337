package core

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// An unreadable state is an error with the place and the reason. Fields of later versions are ignored.
func TestWhatIsNoState(t *testing.T) {
	t.Parallel()
	good := `{"apiVersion":"` + snapshots.APIVersion + `","kind":"PusherState"`
	for text, says := range map[string]string{
		"":                                 "empty",
		" \n":                              "empty",
		"null":                             "does not say",
		"{}":                               "does not say",
		`{"a":1}`:                          "does not say",
		"[]":                               "array",
		"7":                                "number",
		`"state"`:                          "string",
		"\x00\x00\x00\x00":                 "invalid character",
		good:                               "unexpected end",
		good + `}{}`:                       "after top-level value",
		`{"kind":"PusherState"}`:           "does not say",
		`{"apiVersion":"v1","kind":"Pod"}`: `"Pod"`,
		`{"apiVersion":"hapsnap.dev/v9","kind":"PusherState"}`: "hapsnap.dev/v9",
		good + `,"rollout":[]}`:                                "array",
		good + `,"rollout":{"good":"r1"}}`:                     "r1",
		good + `,"uploads":{"a":{"name":"x"}}}`:                "object",
		good + `,"status":7}`:                                  "number",
	} {
		_, err := ParseState([]byte(text), "the place")
		_, status := ParseStatus([]byte(text), "the place")
		if strings.Contains(text, "rollout") || strings.Contains(text, "uploads") {
			status = err // the state does not use it
		}
		for verb, err := range map[string]error{"run": err, "status": status} {
			if !errors.Is(err, ErrNotState) || !strings.Contains(err.Error(), "the place") || !strings.Contains(err.Error(), says) {
				t.Errorf("%s, %q: error is %v, want %q", verb, text, err, says)
			}
		}
	}
	s, err := ParseState([]byte(good+`,"later":{"x":1},"rollout":{"sooner":true},"uploads":null}`), "")
	if err != nil || s.Uploads == nil {
		t.Errorf("fields of a later version: %v", err)
	}
}

// Certificates that will be removed are stored in a field that older pushers ignore.
func TestCertificatesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := parsed(t, nil)
	one := push.Stored{Kind: bind.MapFile, Name: "1.map"}
	s.Uploads["a"] = []Upload{{Stored: one}, {Stored: push.Stored{Kind: bind.CertificateFile, Name: "web.pem"}, Unneeded: noon}}
	data, err := s.Encoded()
	if err != nil {
		t.Fatal(err)
	}
	var older struct{ Uploads map[string][]Upload }
	if err := json.Unmarshal(data, &older); err != nil || len(older.Uploads["a"]) != 1 || older.Uploads["a"][0].Stored != one {
		t.Errorf("an older pusher reads %v: %v", older, err)
	}
	got := parsed(t, data)
	if diff := cmp.Diff(s.Uploads, got.Uploads); diff != "" || got.Certificates != nil {
		t.Errorf("read otherwise:\n%s", diff)
	}
}

func parsed(t *testing.T, data []byte) State {
	t.Helper()
	s, err := ParseState(data, "the place")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInUse(t *testing.T) {
	t.Parallel()
	id := func(n uint64) snapshots.ID { return snapshots.ID{Revision: n, Short: "aaaaaaaaaa"} }
	s := parsed(t, nil)
	s.Rollout = rollout.State{
		Good: id(1),
		Rollout: &rollout.Rollout{Target: id(2), Touched: []rollout.Touch{
			{Instance: "a", Snapshot: id(2)}, {Instance: "b", Snapshot: id(3)},
		}},
		Instances: map[string]rollout.Instance{
			"b": {Push: &rollout.Push{Snapshot: id(4)}},
			"a": {Push: &rollout.Push{Snapshot: id(4)}, Refused: id(8)},
			"c": {},
		},
	}
	s.Status = report.Status{
		Channel:   report.Channel{Wanted: id(5)},
		Instances: []report.Instance{{Name: "a", Running: id(1)}, {Name: "b", Running: id(6)}, {Name: "c"}},
	}
	want := map[snapshots.ID]string{
		id(1): "last good, running on a",
		id(2): "target of the rollout, pushed to a",
		id(3): "pushed to b",
		id(4): "pushed to a, pushed to b",
		id(5): "wanted",
		id(6): "running on b",
	}
	if diff := cmp.Diff(want, s.InUse()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
