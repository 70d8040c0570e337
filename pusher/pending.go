package pusher

import (
	"fmt"
	"strings"
	"time"
)

// pending says what is on its way to an instance that is not in sync though nothing failed.
func (e *engine) pending(i *instance) string {
	running, target := i.snapshot(), e.target()
	switch {
	case i.busy == workPush:
		return "a snapshot is being pushed to it"
	case target.IsZero():
		return "no snapshot is wanted yet"
	case running.IsZero():
		return fmt.Sprintf("runs another configuration, %s is to come", target)
	case running != target:
		return fmt.Sprintf("%s is to come", target)
	case e.unclaimed(i):
		return "looks what its worker was started from"
	case e.unknown(running):
		return "waits for endpoints and certificates to be read"
	}
	s := e.standing(i)
	s.Busy, s.NotBefore = false, time.Time{}
	return s.pending(classify(s, time.Time{}))
}

// pending says what it takes to be in sync.
func (s standing) pending(w work) string {
	switch w {
	case workReload:
		return "a reload is to come: its servers have outgrown their slots, or other lines changed"
	case workUpdate:
		var what []string
		for _, part := range []struct {
			same bool
			name string
		}{{s.SameServers, "servers"}, {s.SameMaps, "entries of maps"}, {s.SameCertificates, "certificates"}} {
			if !part.same {
				what = append(what, part.name)
			}
		}
		return strings.Join(what, ", ") + " are being brought up to date"
	case workPersist:
		return "its servers are to be written to its disk"
	case workCollect:
		return "files that nothing needs are to be removed"
	case workInspect:
		return "its files and servers are to be compared with what was left there"
	case workNothing:
	}
	if !s.Bound {
		return "what it runs is not at hand"
	}
	return ""
}
