package pusher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// What is logged, posted and said in Events of a step is told from one source.
func TestHappenings(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	good := rollout.State{Good: one}
	of := func(phase rollout.Phase, paused string) rollout.State {
		return rollout.State{Good: one, Rollout: &rollout.Rollout{Target: two, Phase: phase, Paused: paused, Members: []string{"a"}}}
	}
	failed := func(phase rollout.Phase, recorded bool) rollout.State {
		s := of(phase, "")
		s.Failed = []rollout.Failure{{Snapshot: two, Reason: "a: refused", Recorded: recorded}}
		return s
	}
	undone := failed(rollout.Undoing, true)
	undone.Rollout = nil
	fought := rollout.State{
		Good:    one,
		Repairs: map[string]rollout.Repairs{"b": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "a": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "c": {Snapshot: one}},
	}
	const undone3 = "somebody else keeps changing it, 3 repairs in 10 minutes were undone: what it runs: want r000001-aaaaaaaaaa, found theirs"
	for name, test := range map[string]struct {
		old, next rollout.State
		want      string
	}{
		"nothing":     {good, good, ""},
		"begins":      {good, of(rollout.Pushing, ""), "rollout begins | rollout_begins | RolloutBegins | rollout of r000002-bbbbbbbbbb begins\nrollout goes on |  |  | \n"},
		"goes on":     {of(rollout.Pushing, ""), of(rollout.Soaking, ""), "rollout goes on |  |  | \n"},
		"done":        {of(rollout.Soaking, ""), rollout.State{Good: two}, "rollout done | rollout_done | RolloutDone | the fleet runs r000002-bbbbbbbbbb\n"},
		"is there":    {rollout.State{}, good, "fleet runs snapshot |  |  | \n"},
		"failed":      {of(rollout.Pushing, ""), failed(rollout.Pushing, false), "rollout failed | rollout_failed | RolloutFailed! | rollout of r000002-bbbbbbbbbb failed: a: refused\n"},
		"rejected":    {failed(rollout.Undoing, false), failed(rollout.Undoing, true), " |  | SnapshotRejected! | r000002-bbbbbbbbbb is rejected, until pusher retry\n"},
		"undone":      {failed(rollout.Undoing, true), undone, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone, the fleet runs r000001-aaaaaaaaaa\n"},
		"first fails": {rollout.State{Rollout: of("", "").Rollout}, rollout.State{}, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone\n"},
		"paused":      {of(rollout.Soaking, ""), of(rollout.Soaking, "b: 5xx"), "rollout paused | rollout_paused | RolloutPaused! | rollout of r000002-bbbbbbbbbb is paused: b: 5xx\n"},
		"resumes":     {of(rollout.Soaking, "b: 5xx"), of(rollout.Soaking, ""), "pause of rollout ends | rollout_goes_on | RolloutGoesOn | rollout of r000002-bbbbbbbbbb goes on after its pause\n"},
		"conflicts": {good, fought, "repairs stop | repairs_stop | RepairsStop! | a: " + undone3 + "\n" +
			"repairs stop | repairs_stop | RepairsStop! | b: " + undone3 + "\n"},
		"still in conflict": {fought, fought, ""},
		"conflicts end":     {fought, good, "repairs go on | repairs_go_on | RepairsGoOn | a: repairs go on\nrepairs go on | repairs_go_on | RepairsGoOn | b: repairs go on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			for _, h := range happenings(test.old, test.next) {
				reason := h.reason
				if h.bad {
					reason += "!"
				}
				fmt.Fprintf(&got, "%s | %s | %s | %s\n", h.log, h.event, reason, h.text)
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("told differs (-want +got):\n%s", diff)
			}
		})
	}
}
