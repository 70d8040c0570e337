package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/killtest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Main is for TestMain, before anything else: in a process that [RunKilled] started, it changes a store and
// ends the process. Open opens the store at [Backend.Place].
//
// It repeats a call that fails once; the second call must not fail.
func Main(open func(place string) (Store, error)) {
	killtest.Main(func(args []string) (string, error) {
		s, err := open(args[0])
		if err != nil {
			return "", err
		}
		if err := perform(context.Background(), s, args[1:]); err == nil {
			return "done", nil
		}
		return "done", perform(context.Background(), s, args[1:])
	})
}

// perform makes one call that changes a store. The call is given in words, which can be passed to another
// process.
func perform(ctx context.Context, s Writer, words []string) error {
	switch words[0] {
	case "publish":
		_, _, err := s.Publish(ctx, numbered(words[1]))
		return err
	case "approve":
		id, err := snapshots.ParseID(words[1])
		if err != nil {
			return err
		}
		return s.UpdateChannel(ctx, "approve", epoch, approve(id))
	case "delete":
		id, err := snapshots.ParseID(words[1])
		if err != nil {
			return err
		}
		return s.Delete(ctx, id)
	default:
		return fmt.Errorf("do not know how to %s", words[0])
	}
}

// numbered returns a draft that differs for each word.
func numbered(word string) snapshots.Draft { return Draft("web", "files/0.txt", word) }

// killer lets a writer do what the words say, and kills it at the nth point, or makes something fail there. It
// returns false if the writer has no such point.
type killer func(t testCase, n int, words ...string) (met bool)

var errKilled = errors.New("killed")

// byStep is a killer of writers in this process, which end at one of their steps.
func byStep(t testCase, n int, words ...string) bool {
	t.Helper()
	steps := 0
	doomed := t.Open(func(string) error {
		if steps++; steps >= n {
			return errKilled
		}
		return nil
	})
	defer doomed.Close()
	err := perform(t.Context(), doomed, words)
	killed := steps >= n
	if killed != errors.Is(err, errKilled) || (err != nil && !killed) {
		t.Fatalf("killed at step %d of %d: %v", n, steps, err)
	}
	return killed
}

// ofProcesses is a killer of processes, at any of their writes.
func ofProcesses(t testCase, n int, words ...string) bool {
	t.Helper()
	fate := killtest.Kill
	if t.Sends {
		fate = killtest.KillSending
	}
	o := killtest.Run(t.T, fate, n, append([]string{t.Place}, words...)...)
	if o.Killed != o.Met || (!o.Met && o.Said != "done") {
		t.Fatalf("a process that was to be killed at write %d (%s) ended with %q", n, o.Point, o.Said)
	}
	return o.Met
}

// ofWrites makes one write of a process fail. The process continues.
func ofWrites(t testCase, n int, words ...string) bool {
	t.Helper()
	o := killtest.Run(t.T, killtest.Fail, n, append([]string{t.Place}, words...)...)
	if o.Said != "done" {
		t.Fatalf("a process whose write %d (%s) failed ended with %q", n, o.Point, o.Said)
	}
	return o.Met
}

// killEverywhere kills a writer at its first point, the next one at its second, and so on until one survives.
// After each kill it calls check.
func killEverywhere(t testCase, kill killer, words func() []string, check func()) {
	t.Helper()
	for n := 1; n < 1000; n++ {
		met := kill(t, n, words()...)
		check()
		switch {
		case t.Failed():
			t.Fatalf("that was after point %d", n)
		case !met && n < 3:
			t.Fatalf("there were only %d points", n-1)
		case !met:
			return
		}
	}
	t.Fatal("the writer never outlived its points")
}

// RunKilled runs the tests in which a process is killed at each of its writes. The test's TestMain calls [Main].
func RunKilled(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	run(t, newBackend, []test{
		{"a process that publishes is killed at every write", killedPublish(ofProcesses)},
		{"a process that edits the channel is killed at every write", killedEdit(ofProcesses)},
		{"a process that deletes is killed at every write", killedDelete(ofProcesses)},
	})
}

// RunFailing runs the tests in which each write of a process fails in turn, and the process continues. The
// test's TestMain calls [Main].
func RunFailing(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	run(t, newBackend, []test{
		{"a process that publishes has each of its writes fail", killedPublish(ofWrites)},
		{"a process that edits the channel has each of its writes fail", killedEdit(ofWrites)},
		{"a process that deletes has each of its writes fail", killedDelete(ofWrites)},
	})
}

func killedPublish(kill killer) func(t testCase) {
	return func(t testCase) {
		first := t.Open(nil)
		last := publish(t, first, numbered(""))
		first.Close()
		before, word := snapshots.ID{}, "a"
		killEverywhere(t, kill, func() []string {
			word += "a"
			return []string{"publish", word}
		}, func() {
			s := t.Open(nil)
			defer s.Close() // otherwise the caches of many would be in the way
			wantHistoryAfter(t, s, before)
			made := snapshots.NewID(last.Revision+1, numbered(word).Digest())
			if head := view(t, s).Head(); head != made && head != last {
				t.Errorf("the newest snapshot is %s, want %s or %s", head, made, last)
			}
			// The writer's successor finishes the work, or finds it done.
			if id, _, err := s.Publish(t.Context(), numbered(word)); err != nil || id != made {
				t.Errorf("published again as %s, want %s: %v", id, made, err)
			}
			last, before = publish(t, s, numbered(word+" and on")), made
			wantTidy(t)
			if err := s.Delete(t.Context(), view(t, s).IDs[:2]...); err != nil {
				t.Error(err)
			}
		})
	}
}

func killedEdit(kill killer) func(t testCase) {
	return func(t testCase) {
		first := t.Open(nil)
		publish(t, first, Draft("web"))
		first.Close()
		var id snapshots.ID
		var revision uint64
		killEverywhere(t, kill, func() []string {
			revision++
			id = snapshots.ID{Revision: revision, Short: "0123456789"}
			return []string{"approve", id.String()}
		}, func() {
			s := t.Open(nil)
			defer s.Close()
			if got := view(t, s).Channel.Spec.Approved; uint64(len(got)) != revision && uint64(len(got)) != revision-1 {
				t.Errorf("%d snapshots are approved, want %d or one less", len(got), revision)
			}
			if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
				t.Error(err)
			}
			if got := view(t, s).Channel.Spec.Approved; uint64(len(got)) != revision {
				t.Errorf("%d snapshots are approved, want %d", len(got), revision)
			}
			wantTidy(t)
		})
	}
}

func killedDelete(kill killer) func(t testCase) {
	return func(t testCase) {
		first := t.Open(nil)
		keep := publish(t, first, Draft("first"))
		first.Close()
		head, other := "web", "shop"
		killEverywhere(t, kill, func() []string {
			head, other = other, head
			s := t.Open(nil)
			defer s.Close()
			doomed := publish(t, s, Draft(head))
			publish(t, s, Draft(head, "files/last.txt", "x"))
			return []string{"delete", doomed.String()}
		}, func() {
			s := t.Open(nil)
			defer s.Close()
			ids := view(t, s).IDs
			for _, id := range ids {
				get(t, s, id)
			}
			if err := s.Delete(t.Context(), ids[1:len(ids)-1]...); err != nil {
				t.Error(err)
			}
			last := publish(t, s, Draft("on", "files/last.txt", head))
			wantIDs(t, s, keep, ids[len(ids)-1], last)
			wantTidy(t)
			if err := s.Delete(t.Context(), ids[len(ids)-1]); err != nil {
				t.Error(err)
			}
		})
	}
}

// wantTidy checks that the last writer left nothing of those before it.
func wantTidy(t testCase) {
	t.Helper()
	if litter := t.Litter(); len(litter) > 0 {
		t.Errorf("left over: %v", litter)
	}
}
