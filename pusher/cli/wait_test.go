package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// wait reports when the fleet has reached its goal, and when it will not reach it. An earlier failure does not
// count, since retry is for that.
func TestGoalReached(t *testing.T) {
	t.Parallel()
	id := snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	old := rollout.Failure{Snapshot: id, Reason: "too slow", At: time.Unix(1e9, 0)}
	again := rollout.Failure{Snapshot: id, Reason: "too slow again", At: time.Unix(2e9, 0)}
	runs := report.Instance{Name: "edge-1", Reachable: true, Running: id}
	other := report.Instance{Name: "edge-2", Reachable: true}
	wanted := report.Channel{Wanted: id, Newest: id}
	rolls := func(p rollout.Phase) *report.Rollout { return &report.Rollout{Target: id, Phase: p} }
	for name, test := range map[string]struct {
		goal         goal
		status       report.Status
		done, failed string
	}{
		"all run it":                          {goal{snapshot: id}, report.Status{Channel: wanted, Instances: []report.Instance{runs}}, "1 of 1 instances run " + id.String(), ""},
		"all ran it when the pusher ended":    {goal{snapshot: id}, report.Status{Stale: true, Channel: wanted, Instances: []report.Instance{runs}}, "", ""},
		"one does not":                        {goal{snapshot: id}, report.Status{Channel: wanted, Instances: []report.Instance{runs, other}}, "", ""},
		"it soaks":                            {goal{snapshot: id}, report.Status{Channel: wanted, Rollout: rolls(rollout.Soaking), Instances: []report.Instance{runs}}, "", ""},
		"there are no instances":              {goal{snapshot: id}, report.Status{Channel: wanted}, "", ""},
		"the pusher has not read the channel": {goal{snapshot: id}, report.Status{Instances: []report.Instance{runs}}, "", ""},
		"it failed":                           {goal{snapshot: id}, report.Status{Rejected: []rollout.Failure{old}}, "", id.String() + " failed: too slow"},
		"it failed before":                    {goal{snapshot: id, before: []rollout.Failure{old}}, report.Status{Rejected: []rollout.Failure{old}}, "", ""},
		"it fails once more":                  {goal{snapshot: id, before: []rollout.Failure{old}}, report.Status{Rollout: rolls(rollout.Undoing), Rejected: []rollout.Failure{again}}, "", id.String() + " failed, and is being undone: too slow again"},
		"an abort":                            {goal{undone: id}, report.Status{Rollout: rolls(rollout.Undoing), Rejected: []rollout.Failure{old}}, "", ""},
		"an abort that is done":               {goal{undone: id}, report.Status{Rejected: []rollout.Failure{old}}, id.String() + " is undone: too slow", ""},
		"no rollout as far as the store was not read": {goal{idle: true}, report.Status{Channel: report.Channel{Hold: true, Message: report.NotRead}, Instances: []report.Instance{runs}}, "", ""},
		"no rollout":           {goal{idle: true}, report.Status{Channel: wanted, Instances: []report.Instance{runs}}, "no rollout is under way: 1 of 1 instances run " + id.String(), ""},
		"a rollout":            {goal{idle: true}, report.Status{Channel: wanted, Rollout: rolls(rollout.Pushing), Instances: []report.Instance{runs}}, "", ""},
		"a rollout that fails": {goal{idle: true, seen: id}, report.Status{Channel: wanted, Rejected: []rollout.Failure{old}, Instances: []report.Instance{runs}}, "", id.String() + " failed: too slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if done, failed := test.goal.reached(test.status); done != test.done || failed != test.failed {
				t.Errorf("done %q, failed %q; want %q and %q", done, failed, test.done, test.failed)
			}
		})
	}
}

// A failure and a timeout have exit codes of their own. The answer is printed first.
func TestWaitExitCodes(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	failed := writeState(t, report.Status{Updated: time.Now(), Rejected: []rollout.Failure{{Snapshot: ids[0], Reason: "too slow", At: time.Now()}}})
	if code, _, errs := pusherCommand(t, "wait", "--for", "snapshot=r1", "--store", url, "--state", failed); code != process.ExitRolledBack || !strings.Contains(errs, "failed: too slow") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, out, errs := pusherCommand(t, "pin", "r1", "--wait", "--timeout", "1ms", "--store", url, "--state", failed)
	if code != process.ExitTimedOut || !strings.HasPrefix(out, ids[0].String()+" pinned by ") || !strings.Contains(errs, "timed out after 1ms") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// wait for a snapshot that is not wanted reports which one should run.
func TestWaitForWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	s := report.Status{Channel: report.Channel{Wanted: two, Newest: two}, Instances: []report.Instance{{Name: "edge-1", Reachable: true, Running: two}}}
	if text := (goal{snapshot: one}).open(s); !strings.HasPrefix(text, two.String()+" should run, and not "+one.String()+"; ") {
		t.Error(text)
	}
	if text := (goal{snapshot: two}).open(s); strings.Contains(text, "should run") {
		t.Error(text)
	}
}

// seconds matches the time for which a verb has been running.
var seconds = regexp.MustCompile(`\([0-9]+s\)`)

// On a terminal, one line says what wait waits for and for how long. It disappears at the end. The golden file
// has each state of that line.
func TestTerminalOfWait(t *testing.T) {
	id, now := snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, time.Now()
	runs := report.Status{Updated: now, Channel: report.Channel{Wanted: id, Newest: id}, Instances: []report.Instance{
		{Name: "edge-1", Reachable: true, Running: id}, {Name: "edge-2", Reachable: true, Running: id},
	}}
	waits := runs
	waits.Instances = slices.Clone(runs.Instances)
	waits.Instances[1].Running, waits.Instances[1].Pending = snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, "waits for its turn in the second wave"
	waits.Rollout = &report.Rollout{Target: id, Phase: rollout.Soaking, Wave: 1, Members: []string{"edge-1"}}
	terminal.GoldenOf(t, "wait", func(screen *terminal.Terminal) string {
		state := writeState(t, waits)
		root := NewCommand()
		root.SetArgs([]string{"wait", "--for", "rollout", "--state", state})
		root.SetOut(screen.File)
		root.SetErr(screen.File)
		ended := make(chan error, 1)
		go func() { ended <- root.ExecuteContext(t.Context()) }()
		screen.Until(t, "waiting: progressing: ")
		if err := os.Rename(writeState(t, runs), state); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		sent := strings.Split(screen.Seen(t), "\r\x1b[K")
		var lines []string
		for n, line := range sent[1:] { // the first one is what was there before
			if line = seconds.ReplaceAllString(line, "(1s)"); n > 0 && line == lines[len(lines)-1] {
				continue
			}
			lines = append(lines, line)
		}
		return sent[0] + strings.Join(lines, "\n")
	})
}

// What a pusher has not seen of the store yet is waited for: it says that no rollout is under way.
func TestUnseen(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	both := channel.View{IDs: []snapshots.ID{one, two}}
	pinned := channel.View{IDs: both.IDs, Channel: channel.Channel{}.Pinned(channel.Pin{Snapshot: one, By: "ann"})}
	runs := func(id snapshots.ID) report.Status { return report.Status{Channel: report.Channel{Wanted: id}} }
	signed := runs(one)
	signed.Troubles = []report.Trouble{{About: report.AboutSigned}}
	for name, test := range map[string]struct {
		view   channel.View
		status report.Status
		want   string
	}{
		"the newest is seen":         {both, runs(two), ""},
		"a snapshot is not":          {both, runs(one), "by the store, " + two.String() + " is the newest; the pusher has not seen that yet"},
		"a pin is not":               {pinned, runs(two), "by the store, " + one.String() + " is pinned by ann; the pusher has not seen that yet"},
		"a pin is seen":              {pinned, runs(one), ""},
		"an end of a pause is not":   {both, report.Status{Channel: report.Channel{Hold: true}}, "by the store, " + two.String() + " is the newest; the pusher has not seen that yet"},
		"the newest is not accepted": {both, signed, ""},
	} {
		if got := unseen(test.view, test.status, time.Now()); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
