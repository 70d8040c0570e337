package process

import (
	"errors"
	"strings"
	"time"
)

// ParseTime reads a time that is over, as people write it: RFC 3339, a date with or without a time of day, today or
// yesterday with one, a time of day, or how long ago it was. Times are those of the zone that now is in.
func ParseTime(text string, now time.Time) (time.Time, error) {
	at, ok := parseTime(strings.TrimSpace(text), now)
	switch {
	case !ok:
		return time.Time{}, errors.New("want a time such as 'yesterday 14:03', 14:03, '2h ago', 2026-01-31, '2026-01-31 14:03' or 2026-01-31T14:03:00Z")
	case at.After(now):
		return time.Time{}, errors.New(text + " is not over yet")
	}
	return at, nil
}

func parseTime(text string, now time.Time) (time.Time, bool) {
	if ago, err := ParseDuration(strings.TrimSuffix(strings.TrimSuffix(text, " ago"), "ago")); err == nil {
		return now.Add(-ago), true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	for _, layout := range []string{"2006-01-02", "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, true
		}
	}
	day, clock, _ := strings.Cut(text, " ")
	back := map[string]int{"today": 0, "yesterday": 1}
	days, named := back[day]
	if !named {
		clock = text
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if at, err := time.Parse(layout, clock); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day()-days, at.Hour(), at.Minute(), at.Second(), 0, now.Location()), true
		}
	}
	if named && clock == "" {
		return time.Date(now.Year(), now.Month(), now.Day()-days, 0, 0, 0, 0, now.Location()), true
	}
	return time.Time{}, false
}
