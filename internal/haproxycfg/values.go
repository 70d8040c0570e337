package haproxycfg

import (
	"strconv"
	"strings"
	"time"
)

// timeUnits are HAProxy's units of time, those with longer names first.
var timeUnits = []struct {
	word string
	unit time.Duration
}{
	{"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second},
	{"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// Duration reads a time like HAProxy. Without a unit it is in milliseconds. Duration returns zero if the text is not a
// time.
func Duration(text string) time.Duration {
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
