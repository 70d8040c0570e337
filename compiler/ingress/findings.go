package ingress

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
)

// findings collects what is to be said of objects.
type findings struct{ all []diag.Diagnostic }

func (f *findings) add(found ...diag.Diagnostic) { f.all = append(f.all, found...) }

// report adds a finding on an object.
func (f *findings) report(severity diag.Severity, by ownership.Claimant, at diag.Position, message, hint string) {
	f.add(diag.Diagnostic{Severity: severity, Position: at, Object: by.Ref, Message: message, Hint: hint})
}

// reportLost adds a finding on an object that claims what the winner has; that
// may be the same object.
func (f *findings) reportLost(severity diag.Severity, by, winner ownership.Claimant, at diag.Position, message, hint string) {
	f.add(diag.Diagnostic{Severity: severity, Position: at, Object: by.Ref, Message: message, Hint: hint, Conflict: winner.Ref != by.Ref})
}

// ofHost names the host of a rule in a message.
func ofHost(host string) string {
	if host == "" {
		return " of all hosts"
	}
	return " of host " + host
}

// winnerAt names the place of an older claim, if it is known.
func winnerAt(o routing.Origin) string {
	if at := o.Position.String(); at != "" {
		return "; the other is at " + at
	}
	return ""
}

// mostFindings is how many findings there are on one object. Each becomes an Event and a line of
// the log: those of an object with thousands of mistakes would be in the way of what others are
// told.
const mostFindings = 100

// bounded sorts findings, and leaves out those of an object that has too many, but for the last,
// which says how many more there are.
func bounded(found []diag.Diagnostic) []diag.Diagnostic {
	found = diag.Sort(found)
	count := map[diag.Object]int{}
	for _, d := range found {
		count[d.Object]++
	}
	seen := map[diag.Object]int{}
	more := map[diag.Object]int{} // where in out
	out := found[:0:0]
	for _, d := range found {
		switch seen[d.Object]++; {
		case d.Object == diag.Object{} || count[d.Object] <= mostFindings || seen[d.Object] < mostFindings:
			out = append(out, d)
		case seen[d.Object] == mostFindings:
			more[d.Object] = len(out)
			d.Message = fmt.Sprintf("there are %d more findings on this object like these, which are not listed", count[d.Object]-mostFindings+1)
			d.Hint = "correct those that are"
			out = append(out, d)
		default:
			last := &out[more[d.Object]]
			last.Severity, last.Conflict = max(last.Severity, d.Severity), last.Conflict && d.Conflict
		}
	}
	return out
}
