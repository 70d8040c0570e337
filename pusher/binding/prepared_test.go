package binding

import (
	"testing"
	"time"
)

func TestHardStopAfter(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config string
		want   time.Duration
	}{
		"minutes":         {"global\n    hard-stop-after 30m\n", 30 * time.Minute},
		"milliseconds":    {"global\n    hard-stop-after 1500\n", 1500 * time.Millisecond},
		"ms":              {"global\n    hard-stop-after 20ms\n", 20 * time.Millisecond},
		"a comment":       {"# top\nglobal\n    # hard-stop-after 1s\n    hard-stop-after 2s # soon\n", 2 * time.Second},
		"behind others":   {"global\n    maxconn 100\n\n    hard-stop-after 1h\ndefaults\n", time.Hour},
		"not indented":    {"global\nmaxconn 100\nhard-stop-after 30m\ndefaults\nhard-stop-after 1s\n", 30 * time.Minute},
		"quoted":          {"  \"global\"\n hard-stop-after \"30\"m\n", 30 * time.Minute},
		"said twice":      {"global\n hard-stop-after 1m\ndefaults\nglobal\n hard-stop-after 2m\n", 2 * time.Minute},
		"not said":        {"global\n    maxconn 100\ndefaults\n    hard-stop-after 1s\n", 0},
		"no global":       {"defaults\n    mode http\n", 0},
		"not a time":      {"global\n    hard-stop-after soon\n", 0},
		"without a value": {"global\n    hard-stop-after\n", 0},
		"empty":           {"", 0},
	}
	for name, test := range tests {
		if got := hardStopAfter([]byte(test.config)); got != test.want {
			t.Errorf("%s: hardStopAfter is %s, want %s", name, got, test.want)
		}
	}
}
