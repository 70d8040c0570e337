package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// Rollout is what the file says of the rollout policy; zero is nothing.
type Rollout struct {
	Waves     []rollout.Size
	Soak      *time.Duration
	Deadline  time.Duration
	Budget    *rollout.Budget
	Blackouts []rollout.Blackout
	Gate      *rollout.Gate
}

// Apply returns the policy with what the file says.
func (r Rollout) Apply(p rollout.Policy) rollout.Policy {
	if len(r.Waves) > 0 {
		p.Waves = r.Waves
	}
	if r.Soak != nil {
		p.Soak = *r.Soak
	}
	if r.Deadline > 0 {
		p.Deadline = r.Deadline
	}
	if r.Budget != nil {
		p.Budget = *r.Budget
	}
	if r.Gate != nil {
		p.Gate = *r.Gate
	}
	p.Blackouts = r.Blackouts
	return p
}

// rolloutDocument is the policy as it is written.
type rolloutDocument struct {
	Waves     []string         `json:"waves,omitempty"`
	Soak      *metav1.Duration `json:"soak,omitempty"`
	Deadline  *metav1.Duration `json:"deadline,omitempty"`
	Budget    *budget          `json:"budget,omitempty"`
	Blackouts []blackout       `json:"blackouts,omitempty"`
	Gate      *gate            `json:"gate,omitempty"`
}

type budget struct {
	PerMinute     *int             `json:"perMinute,omitempty"`
	Burst         *int             `json:"burst,omitempty"`
	PerInstance   *int             `json:"perInstance,omitempty"`
	Within        *metav1.Duration `json:"within,omitempty"`
	OldWorkers    *int             `json:"oldWorkers,omitempty"`
	HardStopAfter *metav1.Duration `json:"hardStopAfter,omitempty"`
}

type blackout struct {
	Days     []string `json:"days,omitempty"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	TimeZone string   `json:"timeZone,omitempty"`
}

func (r *reader) rollout(d rolloutDocument) Rollout {
	var out Rollout
	for n, text := range d.Waves {
		size, err := rollout.ParseSize(text)
		if err == nil {
			err = rollout.CheckOrder(out.Waves, size)
		}
		if err != nil {
			r.fault(`such as ["1", "25%", "100%"], or ["1", "zone"]`, err.Error(), "spec", "rollout", "waves", n)
			continue
		}
		out.Waves = append(out.Waves, size)
	}
	if soak := d.Soak; soak != nil {
		out.Soak = &soak.Duration
		if soak.Duration < 0 {
			r.fault("", "a soak time cannot be negative", "spec", "rollout", "soak")
		}
	}
	if deadline := d.Deadline; deadline != nil {
		out.Deadline = deadline.Duration
		if deadline.Duration < time.Second {
			r.fault("", "a deadline must be a second or more", "spec", "rollout", "deadline")
		}
	}
	if d.Budget != nil {
		out.Budget = r.budget(*d.Budget)
	}
	if d.Gate != nil {
		out.Gate = r.gate(*d.Gate)
	}
	for n, b := range d.Blackouts {
		out.Blackouts = append(out.Blackouts, r.blackout(b, "spec", "rollout", "blackouts", n))
	}
	return out
}

// budget reads the limits; what is left out is as by default.
func (r *reader) budget(d budget) *rollout.Budget {
	b := rollout.DefaultPolicy().Budget
	for _, f := range []struct {
		name  string
		given *int
		to    *int
		least int
	}{
		{"perMinute", d.PerMinute, &b.PerMinute, 0}, {"burst", d.Burst, &b.Burst, 1},
		{"perInstance", d.PerInstance, &b.Reloads, 0}, {"oldWorkers", d.OldWorkers, &b.OldWorkers, 0},
	} {
		if f.given == nil {
			continue
		}
		if *f.to = *f.given; *f.given < f.least || *f.given > 1_000_000 {
			r.fault("", fmt.Sprintf("%s must be %d or more", f.name, f.least), "spec", "rollout", "budget", f.name)
		}
	}
	r.positive(d.Within, &b.Within, "budget", "within")
	r.positive(d.HardStopAfter, &b.HardStopAfter, "budget", "hardStopAfter")
	return &b
}

// positive reads a duration of the rollout policy that must be more than nothing.
func (r *reader) positive(given *metav1.Duration, to *time.Duration, section, name string) {
	if given == nil {
		return
	}
	if *to = given.Duration; given.Duration <= 0 {
		r.fault("", name+" must be more than nothing", "spec", "rollout", section, name)
	}
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (r *reader) blackout(d blackout, at ...any) rollout.Blackout {
	out := rollout.Blackout{From: r.clock(d.From, append(at, "from")), To: r.clock(d.To, append(at, "to")), Zone: time.UTC}
	for n, day := range d.Days {
		i := slices.Index(weekdays, strings.ToLower(day))
		if i < 0 {
			r.fault("one of "+strings.Join(weekdays, ", "), fmt.Sprintf("%q is no day of the week", day), append(at, "days", n)...)
			continue
		}
		out.Days = append(out.Days, time.Weekday(i))
	}
	if d.TimeZone != "" {
		zone, err := time.LoadLocation(d.TimeZone)
		if err != nil || d.TimeZone == "Local" {
			r.fault("a name of the tz database, such as Europe/Berlin", fmt.Sprintf("%q is no time zone", d.TimeZone), append(at, "timeZone")...)
		}
		out.Zone = zone
	}
	return out
}

// clock reads a time of day, from 00:00 to 24:00.
func (r *reader) clock(text string, at []any) time.Duration {
	if text == "24:00" {
		return 24 * time.Hour
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		r.fault("such as 18:00, in quotes", fmt.Sprintf("%q is no time of day", text), at...)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
}

// gate is the health gate as it is written.
type gate struct {
	Statistics      *bool            `json:"statistics,omitempty"`
	MinRequests     *int64           `json:"minRequests,omitempty"`
	MaxErrors       string           `json:"maxErrors,omitempty"`
	MaxTimes        *float64         `json:"maxTimes,omitempty"`
	MinConnections  string           `json:"minConnections,omitempty"`
	CannotTell      string           `json:"cannotTell,omitempty"`
	Extend          *metav1.Duration `json:"extend,omitempty"`
	IgnoreFrontends *[]string        `json:"ignoreFrontends,omitempty"`
}

var cannotTell = []string{string(rollout.Proceed), string(rollout.Extend), string(rollout.HoldOn)}

// gate reads what makes an instance healthy; what is left out is as by default.
func (r *reader) gate(d gate) *rollout.Gate {
	g := rollout.DefaultPolicy().Gate
	at := func(field string) []any { return []any{"spec", "rollout", "gate", field} }
	if d.Statistics != nil {
		g.Off = !*d.Statistics
	}
	if d.MinRequests != nil {
		if g.Requests = *d.MinRequests; g.Requests < 1 {
			r.fault("", "minRequests must be 1 or more", at("minRequests")...)
		}
	}
	if d.MaxTimes != nil {
		if g.Times = *d.MaxTimes; g.Times < 1 {
			r.fault("", "maxTimes must be 1 or more", at("maxTimes")...)
		}
	}
	r.share(d.MaxErrors, &g.Errors, at("maxErrors"))
	r.share(d.MinConnections, &g.Connections, at("minConnections"))
	if d.CannotTell != "" {
		if g.CannotTell = rollout.CannotTell(d.CannotTell); !slices.Contains(cannotTell, d.CannotTell) {
			r.fault("one of "+strings.Join(cannotTell, ", "), fmt.Sprintf("%q does not say what to do when the gate cannot tell", d.CannotTell), at("cannotTell")...)
		}
	}
	r.positive(d.Extend, &g.Extend, "gate", "extend")
	if d.IgnoreFrontends != nil {
		g.Ignore = *d.IgnoreFrontends
	}
	return &g
}

// share reads a share such as 5% or 0.5%.
func (r *reader) share(text string, to *float64, at []any) {
	if text == "" {
		return
	}
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !percent || !(n >= 0 && n <= 100) {
		r.fault("such as 5%", fmt.Sprintf("%q is no share", text), at...)
	}
	*to = n / 100
}
