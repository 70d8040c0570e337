package pusher

import (
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// linger returns how long a worker with this haproxy.cfg lives at most after it was
// replaced, zero if that is not said. HAProxy takes the last of several lines.
func linger(config []byte) time.Duration {
	var most time.Duration
	for section := range haproxycfg.Sections(config) {
		if section.Keyword != "global" {
			continue
		}
		for _, line := range section.Lines {
			if words := line.Texts(); len(words) > 1 && words[0] == "hard-stop-after" {
				most = configTime(words[1])
			}
		}
	}
	return most
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
