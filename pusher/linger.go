package pusher

import (
	"strconv"
	"strings"
	"time"
)

// linger returns how long a worker with this haproxy.cfg lives at most after it was
// replaced, zero if that is not said.
func linger(config []byte) time.Duration {
	global := false
	for line := range strings.Lines(string(config)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case line[0] != ' ' && line[0] != '\t':
			if global {
				return 0 // there is one such section, and it is over
			}
			global = words[0] == "global"
		case global && words[0] == "hard-stop-after" && len(words) > 1:
			return configTime(words[1])
		}
	}
	return 0
}

// timeUnits are those of HAProxy's times, the longer word first.
var timeUnits = []struct {
	word string
	unit time.Duration
}{
	{"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second},
	{"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// configTime reads a time as HAProxy does, in milliseconds unless it names a unit;
// zero if it is none.
func configTime(text string) time.Duration {
	unit := time.Millisecond
	for _, u := range timeUnits {
		if digits, ok := strings.CutSuffix(text, u.word); ok {
			text, unit = digits, u.unit
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * unit
}
