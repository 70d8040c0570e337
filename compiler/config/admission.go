package config

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Admission says how the admission webhook answers.
type Admission struct {
	// FailurePolicy says what becomes of an object that could not be judged,
	// because not all objects are known yet, or HAProxy cannot be run: Ignore allows it
	// with a warning, Fail denies it. These are the words of a
	// ValidatingWebhookConfiguration, whose own failurePolicy says the same of a
	// webhook that cannot be reached. What there was no time for is to be sent again.
	FailurePolicy FailurePolicy `json:"failurePolicy"`
}

// FailurePolicy says what becomes of what could not be judged.
type FailurePolicy string

// The failure policies, in the words of admissionregistration.k8s.io/v1.
const (
	IgnoreFailure FailurePolicy = "Ignore"
	FailClosed    FailurePolicy = "Fail"
)

func (a Admission) check(f field.Errors) {
	if a.FailurePolicy != IgnoreFailure && a.FailurePolicy != FailClosed {
		f.At("failurePolicy").Add(fmt.Sprintf("%q is neither Ignore nor Fail", string(a.FailurePolicy)), "use Ignore or Fail")
	}
}
