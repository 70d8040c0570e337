package process

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// days are the units that time.ParseDuration does not have.
var days = regexp.MustCompile(`(\d+)([dw])`)

// ParseDuration reads a duration as people write it: as in Go, and with days and weeks, such
// as 3d or 1w12h. A day has 24 hours. It is never negative.
func ParseDuration(text string) (time.Duration, error) {
	inHours := days.ReplaceAllStringFunc(text, func(part string) string {
		n, err := strconv.Atoi(part[:len(part)-1])
		if hours := 24 * n; err == nil && part[len(part)-1] == 'd' && hours/24 == n {
			return strconv.Itoa(hours) + "h"
		} else if hours *= 7; err == nil && hours/7/24 == n {
			return strconv.Itoa(hours) + "h"
		}
		return part // which is no duration
	})
	d, err := time.ParseDuration(inHours)
	switch {
	case err != nil:
		return 0, errors.New("want a duration such as 30m, 2h or 3d")
	case d < 0:
		return 0, errors.New("a duration is never negative, the time would be in the past: want one such as 30m, 2h or 3d")
	}
	return d, nil
}

// durationFlag is a flag that takes what [ParseDuration] reads.
type durationFlag time.Duration

func (f *durationFlag) String() string { return time.Duration(*f).String() }
func (f *durationFlag) Type() string   { return "duration" }

func (f *durationFlag) Set(text string) error {
	d, err := ParseDuration(text)
	*f = durationFlag(d)
	return err
}

// DurationVar declares a flag that takes what [ParseDuration] reads.
func DurationVar(flags *pflag.FlagSet, to *time.Duration, name string, otherwise time.Duration, usage string) {
	*to = otherwise
	flags.Var((*durationFlag)(to), name, usage)
}
