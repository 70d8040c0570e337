package observe

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 7, 30, 12, 0, 0, 0, time.UTC)

func TestStandby(t *testing.T) {
	t.Parallel()
	unheard := Troubles{"election": {About: "election", Error: "gone"}}
	taken := Troubles{"state": {About: "state", Error: "another pusher has taken over"}}
	for name, test := range map[string]struct {
		holder   string
		leads    bool
		troubles Troubles
		want     string
		blocked  bool
	}{
		"another leads":          {"edge-1", false, nil, "another pusher leads: edge-1", false},
		"nobody leads":           {"", false, nil, "no pusher leads: instances stay as they are", false},
		"nobody knows":           {"edge-1", false, unheard, "it is not known who leads: instances stay as they are", true},
		"it cannot begin":        {"edge-1", true, taken, "this pusher leads, and could not begin: instances stay as they are", true},
		"another, who took over": {"edge-1", false, taken, "another pusher leads: edge-1", true},
	} {
		s := Standby(test.holder, test.leads, test.troubles, nil, noon)
		if _, blocked := s.Blocked(); !s.Standby || !s.Channel.Hold || s.Channel.Message != test.want || blocked != test.blocked || s.Leader != test.holder {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Every trouble of the pusher has a message of its own.
func TestTroublesHaveMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../core/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\w\.trouble\("([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			if found++; TroubleMessage(m[1]) == TroubleMessage("") {
				t.Errorf("%s: trouble %q has no message", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no trouble was found")
	}
}
