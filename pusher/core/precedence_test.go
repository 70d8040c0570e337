package core

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
)

// People, a compiler and a pusher act on a store in random order, and pushers are killed. What runs always
// follows the precedence. Nothing overtakes a pin. A missing target and an unreachable store hold.
func TestPrecedenceAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("dir/seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store")
			lifetime(t, seed, 60, func() worldStore { return dirstore.Open(path, dirstore.Options{}) })
		})
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("git/seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "edge.git")
			if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", path).CombinedOutput(); err != nil {
				t.Fatalf("git init: %v\n%s", err, out)
			}
			lifetime(t, 100+seed, 12, func() worldStore {
				s, err := gitstore.Open(gitstore.Options{URL: path, CacheDir: filepath.Join(filepath.Dir(path), "cache")})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			})
		})
	}
}

// lifetime lets n things happen. The same seed gives the same story.
func lifetime(t *testing.T, seed uint64, n int, open func() worldStore) {
	t.Helper()
	w := newSteps(t, seed, open)
	w.publish()
	w.settle()
	for i := range n {
		w.happen()
		for range 1 + w.random.IntN(3) {
			w.now = w.now.Add(time.Duration(1+w.random.IntN(20)) * time.Second)
			w.step()
			w.endSome()
		}
		if i%6 == 5 {
			w.settle()
		}
	}
	w.settle()
}

// endSome ends some of the pushes with random outcomes.
func (w *steps) endSome() {
	for _, name := range slices.Sorted(maps.Keys(w.pending)) {
		switch w.random.IntN(8) {
		case 0:
			w.end(w.pending[name], fmt.Errorf("reload: %w", push.ErrRefused))
		case 1:
			w.end(w.pending[name], errors.New("connection reset by peer"))
		case 2: // the push takes longer
		default:
			w.end(w.pending[name], nil)
		}
	}
}

// happen makes one random thing happen.
func (w *steps) happen() {
	w.t.Helper()
	events := []func(){
		w.publish, w.publish, w.publish, w.revert, w.revert, w.revert, w.pin, w.pin, w.pinWanted, w.pinWanted, w.unpin, w.unpin, w.reject, w.retry, w.approve, w.requireApproval,
		w.pause, w.resume, w.resume, w.override, w.endOverride, w.collect, w.remove, w.killed, w.killed, w.goneOrBack,
	}
	events[w.random.IntN(len(events))]()
}

// publish publishes one of a few contents, so that contents repeat.
func (w *steps) publish() { w.publishOf(w.random.IntN(6)) }

// revert publishes what was good before.
func (w *steps) revert() {
	if n, known := w.content[w.e.state.Rollout.Good.Short]; known {
		w.publishOf(n)
	}
}

func (w *steps) publishOf(n int) {
	if w.gone {
		return
	}
	d := snapshots.Draft{
		Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: fmt.Appendf(nil, "# %d\n", n)}},
		Time:  w.now, Subject: "a test",
	}
	id, published, err := w.store.Publish(w.t.Context(), d)
	if err != nil {
		w.fatalf("publish: %v", err)
	}
	w.tell("publish %s (new: %v)", id, published)
	w.whole[id.Short], w.content[id.Short] = d.Digest(), n
	if published {
		w.model.stored = append(w.model.stored, id)
		w.known = append(w.known, id)
	}
}

// any returns a snapshot that exists, has existed, or never existed.
func (w *steps) any() snapshots.ID {
	if n := w.random.IntN(len(w.known) + 1); n < len(w.known) {
		return w.known[n]
	}
	return snapshots.ID{Revision: 999, Short: "0123456789"}
}

// say changes the channel, and the model if that succeeds.
func (w *steps) say(what string, edit func(channel.Channel) channel.Channel, model func(*model)) {
	w.t.Helper()
	if w.gone {
		return
	}
	w.tell("%s", what)
	err := w.store.UpdateChannel(w.t.Context(), what, w.now, func(c *channel.Channel) error {
		*c = edit(*c)
		return nil
	})
	if err != nil {
		w.fatalf("%s: %v", what, err)
	}
	model(&w.model)
}

func (w *steps) pin() { w.pinOf(w.any()) }

func (w *steps) pinOf(id snapshots.ID) {
	w.say("pin "+id.String(), func(c channel.Channel) channel.Channel {
		return c.Pinned(channel.Pin{Snapshot: id, By: "ops", At: w.now})
	}, func(m *model) { m.pin = w.wish(id); m.withdraw(id.Short) })
}

// wish records that a person named a snapshot.
func (w *steps) wish(id snapshots.ID) wish {
	w.named++
	delete(w.found, id.Short)
	return wish{id, w.named}
}

// pinWanted pins what is wanted already, and may be on its way.
func (w *steps) pinWanted() {
	if id := w.model.wants(w.now).id; !id.IsZero() {
		w.pinOf(id)
	}
}

func (w *steps) unpin() {
	w.say("unpin", channel.Channel.Unpinned, func(m *model) { m.pin = wish{} })
}

func (w *steps) override() {
	id, expires := w.any(), w.now.Add(time.Duration(10+w.random.IntN(300))*time.Second)
	w.say("override "+id.String()+" until "+expires.Format("15:04:05"), func(c channel.Channel) channel.Channel {
		return c.Overridden(channel.Override{Snapshot: id, Expires: expires})
	}, func(m *model) { m.override, m.expires = w.wish(id), expires; m.withdraw(id.Short) })
}

func (w *steps) endOverride() {
	w.say("end override", channel.Channel.NotOverridden, func(m *model) { m.override = wish{} })
}

func (w *steps) pause() {
	w.say("pause", func(c channel.Channel) channel.Channel { return c.Paused(channel.Pause{By: "ops", At: w.now}) },
		func(m *model) { m.paused = true })
}

func (w *steps) resume() {
	w.say("resume", channel.Channel.Resumed, func(m *model) { m.paused = false })
}

func (w *steps) reject() {
	id := w.known[w.random.IntN(len(w.known))]
	w.say("reject "+id.String(), func(c channel.Channel) channel.Channel {
		return c.Reject(channel.Rejection{Digest: w.whole[id.Short], Snapshot: id, At: w.now})
	}, func(m *model) { m.rejected[id.Short], m.byHand[id.Short] = true, true; delete(w.found, id.Short) })
}

func (w *steps) retry() {
	id := w.known[w.random.IntN(len(w.known))]
	w.say("retry "+id.String(), func(c channel.Channel) channel.Channel {
		c, _ = c.Retry(w.whole[id.Short])
		return c
	}, func(m *model) { m.withdraw(id.Short); delete(w.found, id.Short) })
}

func (w *steps) approve() {
	id := w.known[w.random.IntN(len(w.known))]
	w.say("approve "+id.String(), func(c channel.Channel) channel.Channel { return c.Approve(id) },
		func(m *model) { m.approved[id] = true })
}

func (w *steps) requireApproval() {
	required := w.random.IntN(3) == 0
	w.say(fmt.Sprintf("require approval: %v", required), func(c channel.Channel) channel.Channel {
		return c.WithApproval(required)
	}, func(m *model) { m.careful = required })
}

// collect deletes old unused snapshots, like `pusher gc`.
func (w *steps) collect() {
	if w.gone {
		return
	}
	view, err := w.store.View(w.t.Context())
	if err != nil {
		w.fatalf("view: %v", err)
	}
	w.e.saving.beginSave(w.now)
	w.saved, _ = w.e.endSave(nil, w.now)
	s, err := ParseState(w.saved, "the world")
	if err != nil {
		w.fatalf("read the state: %v", err)
	}
	used := s.InUse()
	maps.Copy(used, channel.Named(view, w.now))
	var list []channel.Stored
	for _, id := range view.IDs {
		list = append(list, channel.Stored{ID: id})
	}
	_, drop := channel.Retain(list, channel.RetentionPolicy{Keep: 2}, used, w.now)
	for _, id := range drop {
		if id == w.model.wants(w.now).id || id == w.model.pin.id || (id == w.model.override.id && w.now.Before(w.model.expires)) {
			w.fatalf("%s is to be deleted, which is wanted or named", id)
		}
	}
	w.delete(drop)
}

// remove deletes snapshots that may be in use.
func (w *steps) remove() {
	if older := w.model.stored[:len(w.model.stored)-1]; len(older) > 0 && !w.gone {
		w.delete([]snapshots.ID{older[w.random.IntN(len(older))]})
	}
}

func (w *steps) delete(ids []snapshots.ID) {
	w.t.Helper()
	w.tell("delete %v", ids)
	if err := w.store.Delete(w.t.Context(), ids...); err != nil {
		w.fatalf("delete: %v", err)
	}
	w.model.stored = slices.DeleteFunc(slices.Clone(w.model.stored), func(id snapshots.ID) bool { return slices.Contains(ids, id) })
}

// killed ends the pusher, and starts it again with its saved state. Some of the pushes under way still succeed.
func (w *steps) killed() {
	w.t.Helper()
	w.tell("the pusher is killed")
	for _, name := range slices.Sorted(maps.Keys(w.pending)) {
		if w.random.IntN(2) == 0 {
			w.run(w.pending[name])
		}
	}
	w.store.Close()
	w.store = w.open()
	w.begin()
}

func (w *steps) goneOrBack() {
	if w.gone {
		w.back()
	} else {
		w.gone = true
	}
	w.tell("the store is gone: %v", w.gone)
}
