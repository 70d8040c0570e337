package core

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
)

// Somebody reloads HAProxy between a probe and a claim. The claim judges the new worker, of which no probe has told. The
// instance is not claimed again and again until one does: then the end of a claim would make each answer out of date.
func TestWorkerIsReplacedBeforeItsClaim(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.Lead(1)
	m.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:1"}, noon)
	i := m.instances["a"]
	seconds := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	worker := func(pid int) dataplane.RuntimeInfo { return dataplane.RuntimeInfo{PID: pid, Node: "hapsnap"} }
	about := func(pid, at int) instance.About {
		record := push.RecordView{Claimed: true, Remembered: push.Remembered{Worker: push.ProcessOf(worker(pid), seconds(at))}}
		return instance.About{Ref: i.ref(), Known: instance.Known{Number: at, Record: record}}
	}
	claims := func(at int, ev instance.Event) (n int) {
		for _, x := range m.Step(seconds(at), OfInstance{ev}) {
			if on, ok := x.(OnInstance); ok {
				if _, is := on.Effect.(instance.Claim); is {
					n++
				}
			}
		}
		return n
	}
	probed := func(about instance.About, pid, asked int) instance.Probed {
		return instance.Probed{About: about, Info: worker(pid), Asked: seconds(asked)}
	}
	if n := claims(1, probed(about(0, 1), 7, 1)); n != 1 {
		t.Fatalf("%d claims after the first probe", n)
	}
	if n := claims(3, instance.ClaimEnded{About: about(8, 2), Term: 1}); n != 0 {
		t.Error("it is claimed again, though no probe has told anything since")
	}
	if n := claims(4, probed(about(8, 2), 7, 2)); n != 0 || !m.unclaimed(i) {
		t.Error("it is claimed again for an answer from before the claim")
	}
	if n := claims(6, probed(about(8, 2), 8, 5)); n != 0 || m.unclaimed(i) {
		t.Errorf("%d claims of a judged worker, unclaimed: %t", n, m.unclaimed(i))
	}
	if n := claims(8, probed(about(8, 2), 9, 7)); n != 1 {
		t.Errorf("%d claims of a worker that was not judged", n)
	}
}
