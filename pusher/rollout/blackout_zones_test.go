package rollout

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// minute is what a wall clock shows in one minute.
type minute struct {
	at   time.Time
	wall time.Time
	// The clock is set forward from gap by skipped. After that, and until a clock that was not set has shown
	// the skipped time, old is what that other clock shows.
	old, gap time.Time
	skipped  time.Duration
}

// minutes returns each minute between two times.
func minutes(from, to time.Time) []minute {
	var out []minute
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		m := minute{at: at, wall: wallClock(at)}
		if n := len(out) - 1; n >= 0 {
			before := out[n]
			switch by := m.wall.Sub(before.wall) - time.Minute; {
			case by > 0:
				m.gap, m.old, m.skipped = before.wall.Add(time.Minute), before.wall.Add(time.Minute), by
			case before.skipped > 0 && before.old.Add(time.Minute).Before(before.gap.Add(before.skipped)):
				m.gap, m.old, m.skipped = before.gap, before.old.Add(time.Minute), before.skipped
			}
		}
		out = append(out, m)
	}
	return out
}

// bruteBlackout returns the minutes in which a blackout is dark. It looks at what the clock shows in each, and
// computes nothing.
func bruteBlackout(b Blackout, watched []minute) map[int64]bool {
	dark := map[int64]bool{}
	last := watched[len(watched)-1].wall
	for date := watched[0].wall.Truncate(24 * time.Hour); !date.After(last); date = date.AddDate(0, 0, 1) {
		if len(b.Days) > 0 && !slices.Contains(b.Days, date.Weekday()) {
			continue
		}
		begin, end := date.Add(b.From), date.Add(b.To)
		if b.To <= b.From {
			end = end.AddDate(0, 0, 1)
		}
		first, last := -1, -1
		for i, m := range watched {
			in := !m.wall.Before(begin) && m.wall.Before(end)
			if m.skipped > 0 {
				after := m.gap.Add(m.skipped)
				endsIn := end.After(m.gap) && end.Before(after)
				within := !begin.Before(m.gap) && !end.After(after)
				in = in || ((endsIn || within) && begin.Before(after) && m.old.Before(end))
			}
			if in {
				last = i
				if first < 0 {
					first = i
				}
			}
		}
		for i := first; i >= 0 && i <= last; i++ {
			dark[watched[i].at.Unix()] = true
		}
	}
	return dark
}

func TestBlackoutsWhereClocksAreSet(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	zones := map[string]int{
		"Europe/Berlin": 2026, "America/New_York": 2026, "Europe/London": 2026, "Australia/Lord_Howe": 2026, // by half an hour
		"Africa/Casablanca": 2026,                                              // for Ramadan, and back
		"America/Santiago":  2026, "Asia/Beirut": 2026, "America/Havana": 2026, // at midnight
		"America/St_Johns": 2006, // a minute after midnight
		"Asia/Kolkata":     2026, // never
	}
	for name, year := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		set := []time.Time{time.Date(year, 6, 1, 0, 0, 0, 0, zone)}
		for at := time.Date(year, 1, 1, 0, 0, 0, 0, zone); ; {
			_, end := at.ZoneBounds()
			if end.IsZero() || end.Year() > year {
				break
			}
			set, at = append(set, end), end
		}
		for _, at := range set {
			midnight := wallClock(at).Truncate(24 * time.Hour)
			near := func() time.Duration {
				minutes := random.IntN(24*60 + 1)
				if random.IntN(3) > 0 { // near the skipped or repeated time, often at its end
					minutes = int(wallClock(at).Sub(midnight)/time.Minute) + []int{-60, -30, 0, 30, 60, random.IntN(180) - 90}[random.IntN(6)]
				}
				return time.Duration((minutes+24*60)%(24*60+1)) * time.Minute
			}
			watched := minutes(at.Add(-4*24*time.Hour).In(zone), at.Add(4*24*time.Hour).In(zone))
			for range 8 {
				b := Blackout{From: near(), To: near(), Zone: zone}
				if random.IntN(2) == 0 {
					b.Days = []time.Weekday{time.Weekday(random.IntN(7)), midnight.Weekday()}
				}
				from, to := at.Add(-30*time.Hour).UTC(), at.Add(30*time.Hour).UTC()
				want := bruteBlackout(b, watched)
				for now := from; now.Before(to); now = now.Add(time.Minute) {
					until, dark := b.until(now)
					if dark != want[now.Unix()] {
						t.Errorf("%s from %s to %s on %v: at %s dark is %v, want %v", name, b.From, b.To, b.Days, now.In(zone), dark, !dark)
						break
					}
					if dark && (!until.After(now) || !want[until.Add(-time.Minute).Unix()]) {
						t.Errorf("%s from %s to %s on %v: at %s it is dark until %s", name, b.From, b.To, b.Days, now.In(zone), until.In(zone))
						break
					}
				}
			}
		}
	}
}

// These are the cases about which people ask.
func TestBlackoutsOfANightInWhichTheClockIsSet(t *testing.T) {
	t.Parallel()
	hour := func(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }
	for _, tt := range []struct {
		name, zone string
		from, to   float64
		day        string // in UTC
		begin, end string
	}{
		{"an hour that comes twice", "Europe/Berlin", 2, 3, "2026-10-25", "00:00", "02:00"},
		{"half of it", "Europe/Berlin", 2, 2.5, "2026-10-25", "00:00", "01:30"},
		{"it ends where that begins", "Europe/Berlin", 1, 2, "2026-10-25", "23:00", "00:00"},
		{"it ends within", "Europe/Berlin", 1, 2.5, "2026-10-25", "23:00", "01:30"},
		{"it begins within", "Europe/Berlin", 2.5, 4, "2026-10-25", "00:30", "03:00"},
		{"an hour that is skipped", "Europe/Berlin", 2, 3, "2026-03-29", "01:00", "02:00"},
		{"it ends where that ends", "Europe/Berlin", 1, 3, "2026-03-29", "00:00", "01:00"},
		{"it ends within what is skipped", "Europe/Berlin", 1, 2.5, "2026-03-29", "00:00", "01:30"},
		{"it begins within what is skipped", "Europe/Berlin", 2.5, 4, "2026-03-29", "01:00", "02:00"},
		{"half an hour that comes twice", "Australia/Lord_Howe", 1.5, 2, "2026-04-04", "14:30", "15:30"},
		{"midnight is skipped", "America/Santiago", 0, 0.5, "2026-09-06", "04:00", "04:30"},
		{"an hour before midnight twice", "America/Santiago", 23, 24, "2026-04-05", "02:00", "04:00"},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		b := Blackout{From: hour(tt.from), To: hour(tt.to), Zone: zone}
		day, _ := time.Parse(time.DateOnly, tt.day)
		begin, end := "never", "never"
		was := false
		for now := day.Add(-6 * time.Hour); now.Before(day.Add(17 * time.Hour)); now = now.Add(time.Minute) {
			_, dark := b.until(now)
			switch {
			case dark && !was:
				begin = now.Format("15:04")
			case !dark && was:
				end = now.Format("15:04")
			}
			was = dark
		}
		if begin != tt.begin || end != tt.end {
			t.Errorf("%s: dark from %s to %s in UTC, want %s to %s", tt.name, begin, end, tt.begin, tt.end)
		}
	}
}
