package pusher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// troubleWithSecrets tells what the snapshots that run take in vain from Secrets,
// and what is wrong with the rest of it.
func (e *engine) troubleWithSecrets(now time.Time) {
	needed := map[bind.Need]bool{} // and whether it is missing
	for _, i := range e.instances {
		id := i.snapshot()
		n, _ := e.bindings.node(id, i.Layout)
		for _, need := range e.bindings.prepared[id].needs {
			needed[need] = needed[need] || slices.Contains(n.missing, need)
		}
	}
	var errs []error
	e.objects.missed = nil
	for _, need := range slices.SortedFunc(maps.Keys(needed), bind.Need.Compare) {
		if err := secretTrouble(need, needed[need], e.bindings.withExpiry(need, e.live.faults[need], now)); err != nil {
			errs = append(errs, err)
			e.objects.missed = append(e.objects.missed, brokenSecret{need.Secret, err.Error()})
		}
	}
	e.trouble("secrets", errors.Join(errs...), now)
}

// secretTrouble says what is wrong with something that a Secret should hold, and
// what comes of it; nil for nothing. The faults are what was found in the Secret.
func secretTrouble(need bind.Need, missing bool, faults []error) error {
	if !missing {
		if len(faults) == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s", need, inShort(faults))
	}
	why := ""
	if len(faults) > 0 {
		why = ": " + inShort(faults)
	}
	switch need.Use {
	case snapshots.UseCA:
		return fmt.Errorf("no certificate is trusted: Secret %s has no usable authorities under %s%s", need.Secret, bind.AuthoritiesKey, why)
	case snapshots.UseUsers:
		return fmt.Errorf("nobody is let in: Secret %s has no usable users under %s%s", need.Secret, bind.UsersKey, why)
	case snapshots.UseValue:
		return fmt.Errorf("a value that nobody knows is used: Secret %s has none under %s that is one line without '%%'", need.Secret, need.Key)
	case snapshots.UseCertificate:
	}
	return fmt.Errorf("the fallback certificate is served: Secret %s has no usable certificate%s", need.Secret, why)
}

// inShort joins the first few faults.
func inShort(faults []error) string {
	const most = 3
	var out []string
	for _, err := range faults[:min(len(faults), most)] {
		out = append(out, err.Error())
	}
	if more := len(faults) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// redacted is an error of which only the text is another.
type redacted struct {
	error
	text string
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.error }

// withoutSecrets keeps what HAProxy quotes of its configuration out of logs and of
// the status.
func withoutSecrets(err error, bound ...bind.Bound) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, b := range bound {
		text = b.Redact(text)
	}
	return redacted{err, text}
}
