package policy

import (
	"strconv"
	"strings"
	"time"
)

// Duration is a time as HAProxy writes it, such as "30s".
type Duration string

// Seconds returns the duration in whole seconds, rounded up; 0 if it is none.
func (d Duration) Seconds() int {
	if n, ok := strings.CutSuffix(string(d), "d"); ok { // which Go does not know
		days, _ := strconv.Atoi(n)
		return days * 24 * 3600
	}
	t, err := time.ParseDuration(string(d))
	if err != nil {
		return 0
	}
	return int((t + time.Second - 1) / time.Second)
}
