package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

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
			r.fault("one of "+strings.Join(cannotTell, ", "), fmt.Sprintf("%q says not what to do when nobody can tell", d.CannotTell), at("cannotTell")...)
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
