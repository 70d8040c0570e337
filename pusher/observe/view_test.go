package observe

import (
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
