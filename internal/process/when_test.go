package process_test

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 3, 1, 9, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"yesterday 14:03":      time.Date(2026, 2, 28, 14, 3, 0, 0, zone),
		"yesterday":            time.Date(2026, 2, 28, 0, 0, 0, 0, zone),
		"today 09:00":          time.Date(2026, 3, 1, 9, 0, 0, 0, zone),
		"08:15:30":             time.Date(2026, 3, 1, 8, 15, 30, 0, zone),
		"2h ago":               now.Add(-2 * time.Hour),
		"3d":                   now.Add(-72 * time.Hour),
		"2026-01-31":           time.Date(2026, 1, 31, 0, 0, 0, 0, zone),
		"2026-01-31 14:03":     time.Date(2026, 1, 31, 14, 3, 0, 0, zone),
		"2026-01-31T14:03:00Z": time.Date(2026, 1, 31, 14, 3, 0, 0, time.UTC),
	} {
		got, err := process.ParseTime(text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("ParseTime(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "25:00", "10:00", "tomorrow 10:00", "2026-03-02", "-3h", "2026-13-01", "yesterday noon"} {
		if got, err := process.ParseTime(text, now); err == nil {
			t.Errorf("ParseTime(%q) = %v; want an error", text, got)
		}
	}
}
