package pusher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
)

// The bounds of repairs. What has to be repaired time and again is what somebody
// else wants otherwise, and two programs that overwrite each other serve nobody.
const (
	maxRepairs   = 3
	repairWindow = 10 * time.Minute
	truce        = time.Hour // after which it is tried again
)

// kept is what is remembered of an instance over restarts, apart from the rollout.
type kept struct {
	// Of is the UID of the pod that it is remembered of, "" without a pod.
	Of string `json:"of,omitempty"`
	// Alias is what its worker runs, where it was changed at run time.
	Alias push.Alias `json:"alias,omitzero"`
	// Record is what its worker was started from, and whether this state's pusher wrote
	// its file.
	Record push.Remembered `json:"record,omitzero"`
	// ByHand are the servers that another hand took out of traffic.
	ByHand []push.Hand `json:"byHand,omitempty"`
	// Repairs are the last ones, oldest first.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Fight is the one that is going on.
	Fight *Fight `json:"fight,omitempty"`
}

// Fight is another hand that keeps changing what was repaired. Nothing is repaired
// until what is found is what is wanted, or an hour is over.
type Fight struct {
	Since time.Time `json:"since"`
	// Faults are what is wanted and what was found instead.
	Faults []push.Fault `json:"faults"`
}

// String tells of both sides.
func (f Fight) String() string {
	var sides []string
	for _, fault := range f.Faults {
		sides = append(sides, fault.String())
	}
	return fmt.Sprintf("another hand keeps changing it, %d repairs in %.0f minutes were undone: %s",
		maxRepairs, repairWindow.Minutes(), strings.Join(sides, "; "))
}

// judge decides, after an inspection, whether to repair what it found.
func (k kept) judge(faults []push.Fault, now time.Time) (next kept, repair bool) {
	if len(faults) == 0 {
		k.Fight = nil
		return k, false
	}
	if k.Fight != nil && now.Sub(k.Fight.Since) < truce {
		k.Fight = &Fight{k.Fight.Since, faults}
		return k, false
	}
	k.Repairs = slices.DeleteFunc(slices.Clone(k.Repairs), func(at time.Time) bool { return now.Sub(at) >= repairWindow })
	if k.Fight == nil && len(k.Repairs) >= maxRepairs {
		k.Fight = &Fight{now.UTC().Truncate(time.Second), faults}
		return k, false
	}
	k.Fight = nil
	k.Repairs = append(k.Repairs, now.UTC().Truncate(time.Second))
	return k, true
}
