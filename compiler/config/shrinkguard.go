package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// ShrinkGuard says when a configuration that lost much at once waits for
// somebody to approve it.
type ShrinkGuard struct {
	// LostPercent is the share of the backends with servers, or of the hosts, that
	// must be gone at once, in percent. 0 guards against nothing.
	LostPercent int `json:"lostPercent"`
	// MinLost is how many of them must be gone, whatever the share: small set-ups
	// lose half of what they have when one Ingress goes.
	MinLost int `json:"minLost"`
	// Approve is the digest of the one configuration that may be published though
	// it lost that much, as the compiler's log and status name it: ten or more of
	// its hexadecimal digits. It approves nothing else, and may stay.
	Approve string `json:"approve"`
}

// digestForm is what approve may be.
var digestForm = regexp.MustCompile(`^(sha256:)?[0-9a-f]{10,64}$`)

// Approves reports whether a digest is the one that is approved.
func (s ShrinkGuard) Approves(digest string) bool {
	approved := strings.TrimPrefix(s.Approve, "sha256:")
	return approved != "" && strings.HasPrefix(strings.TrimPrefix(digest, "sha256:"), approved)
}

func (s ShrinkGuard) check(f field.Errors) {
	if s.LostPercent < 0 || s.LostPercent > 100 {
		f.At("lostPercent").Add(fmt.Sprintf("%d is not a percentage", s.LostPercent), "use 1 to 100, or 0 for no guard")
	}
	if s.MinLost < 1 {
		f.At("minLost").Add(fmt.Sprintf("%d is not a number of backends", s.MinLost), "use 1 or more")
	}
	if s.Approve != "" && !digestForm.MatchString(s.Approve) {
		f.At("approve").Add(fmt.Sprintf("%q is not a digest", s.Approve), "use the one that compiler status names, such as 9f3ac01b2d")
	}
}
