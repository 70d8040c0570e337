package rollout

import (
	"testing"
	"time"
)

func TestBlackout(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	night := Blackout{From: 22 * time.Hour, To: 6 * time.Hour, Zone: berlin}
	friday := Blackout{Days: []time.Weekday{time.Friday}, From: 18 * time.Hour, To: 24 * time.Hour, Zone: berlin}
	weekend := Blackout{Days: []time.Weekday{time.Saturday, time.Sunday}, To: 24 * time.Hour, Zone: berlin}
	fridayNight := Blackout{Days: []time.Weekday{time.Friday}, From: 22 * time.Hour, To: 6 * time.Hour, Zone: berlin}
	tests := map[string]struct {
		blackouts []Blackout
		now, want string // want "" means no blackout
	}{
		"none":                           {nil, "2026-11-20T20:00:00Z", ""},
		"before":                         {[]Blackout{night}, "2026-11-20T20:59:59Z", ""},
		"at its beginning":               {[]Blackout{night}, "2026-11-20T21:00:00Z", "2026-11-21T05:00:00Z"},
		"after midnight":                 {[]Blackout{night}, "2026-11-21T03:00:00Z", "2026-11-21T05:00:00Z"},
		"at its end":                     {[]Blackout{night}, "2026-11-21T05:00:00Z", ""},
		"another day":                    {[]Blackout{fridayNight}, "2026-11-21T21:30:00Z", ""},
		"the morning after its day":      {[]Blackout{fridayNight}, "2026-11-21T04:00:00Z", "2026-11-21T05:00:00Z"},
		"the morning of its day":         {[]Blackout{fridayNight}, "2026-11-20T04:00:00Z", ""},
		"one after another":              {[]Blackout{weekend, friday}, "2026-11-20T18:00:00Z", "2026-11-22T23:00:00Z"},
		"overlapping":                    {[]Blackout{friday, night}, "2026-11-20T18:00:00Z", "2026-11-21T05:00:00Z"},
		"the clock goes back that night": {[]Blackout{night}, "2026-10-24T21:00:00Z", "2026-10-25T05:00:00Z"},
		"the clock goes forward":         {[]Blackout{night}, "2026-03-28T22:00:00Z", "2026-03-29T04:00:00Z"},
		"without a zone":                 {[]Blackout{{From: time.Hour, To: 2 * time.Hour}}, "2026-11-20T01:30:00Z", "2026-11-20T02:00:00Z"},
	}
	for name, test := range tests {
		now, err := time.Parse(time.RFC3339, test.now)
		if err != nil {
			t.Fatal(err)
		}
		until, dark := Policy{Blackouts: test.blackouts}.blackout(now)
		got := ""
		if dark {
			got = until.UTC().Format(time.RFC3339)
		}
		if got != test.want {
			t.Errorf("%s: dark until %q, want %q", name, got, test.want)
		}
	}
	always := Policy{Blackouts: []Blackout{{To: 24 * time.Hour}}}
	if until, dark := always.blackout(time.Date(2026, 11, 20, 1, 0, 0, 0, time.UTC)); !dark || until.IsZero() {
		t.Errorf("what is always dark is dark until %s, %v", until, dark)
	}
}

func TestSizesOfWaves(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "25%", "100%", "zone"} {
		size, err := ParseSize(text)
		if err != nil || size.String() != text {
			t.Errorf("%q is read as %q, %v", text, size, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "101%", "0%", "zones", "1.5"} {
		if size, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %q", text, size)
		}
	}
}
