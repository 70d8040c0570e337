package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// stormOn has all backends but the last one change at once.
func stormOn(s *stormy, backends int) {
	for b := range backends {
		s.replace(b, fmt.Sprintf("10.1.%d.1", b))
	}
}

// Somebody deleted a server. That is known after a storm too, and reported while it goes on.
func TestServerIsGoneInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		const at = (manyBackends - 1) * slotsEach
		gone := s.want[at]
		s.f.servers[gone.Backend] = s.f.servers[gone.Backend][1:]
		s.f.setting = func(backend, server string, _ dataplane.ServerChange) error {
			if backend == gone.Backend && server == gone.Name {
				return classed{dataplane.ErrNotFound}
			}
			return nil
		}
		s.have.Servers = slices.Clone(s.have.Servers)
		s.have.Servers[at] = bind.Server{Backend: gone.Backend, Name: gone.Name, Weight: gone.Weight}
		s.i.Record = NewRecord(Remembered{Worker: ProcessOf(s.have.Info, time.Now())})
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || !s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		if s.i.Record.View().Foreign(s.have.Info) == "" {
			t.Error("while the storm goes on, nobody knows that the worker has to be replaced")
		}
		err := s.finish()
		if err == nil || !strings.Contains(err.Error(), gone.Backend+"/"+gone.Name) || s.have.Has(s.want) {
			t.Errorf("error %v, the worker counts as having what it should: %t", err, s.have.Has(s.want))
		}
	})
}

// Somebody took a server out of traffic, and the worker was replaced since. In a storm, the server is taken out again, whatever
// the file had when the worker loaded it.
func TestManualDrainIsKeptInAStorm(t *testing.T) {
	t.Parallel()
	const at = (manyBackends - 1) * slotsEach
	for name, loaded := range map[string]bind.Server{
		"the worker loaded it": {Address: "10.0.199.0", Port: 80, State: bind.SlotReady},
		"the file was older":   {Address: spareAddress, Port: 1, State: bind.SlotSpare},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStormy(t)
				drained := s.want[at]
				loaded.Backend, loaded.Name, loaded.Weight = drained.Backend, drained.Name, drained.Weight
				s.have.Servers = slices.Clone(s.have.Servers)
				s.have.Servers[at] = loaded
				s.f.servers[loaded.Backend][0] = dataplane.Server{Name: loaded.Name, Address: loaded.Address, Port: loaded.Port, AdminState: string(loaded.State)}
				s.have.ManualDrains = []ManualDrain{{drained.Backend, drained.Name, drained.Address, drained.Port, bind.SlotDrain}}
				stormOn(s, manyBackends-1)
				if err := s.finish(); err != nil || len(s.have.ManualDrains) != 1 {
					t.Errorf("drained by hand: %v, %v", s.have.ManualDrains, err)
				}
				if is := s.f.servers[drained.Backend][0]; is.AdminState != dataplane.StateDrain || is.Address != drained.Address {
					t.Errorf("the worker has %s at %s", is.AdminState, is.Address)
				}
			})
		})
	}
}

// Somebody takes a server out of traffic while changes of others are put off.
func TestManualDrainComesInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || !s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		const backend = manyBackends - 1 // its first server is about to go
		s.f.servers[backendName(backend)][1].AdminState = dataplane.StateDrain
		want := bound(1, s.want)
		found, err := s.i.Inspect(t.Context(), want, s.have, (manyBackends-1)/maxInspected)
		if err != nil {
			t.Fatal(err)
		}
		if s.have = found.Running; s.finish() != nil || len(s.have.ManualDrains) != 1 {
			t.Errorf("drained by hand: %v", s.have.ManualDrains)
		}
		if is := s.f.servers[backendName(backend)][1]; is.AdminState != dataplane.StateDrain {
			t.Errorf("the worker has it as %s", is.AdminState)
		}
	})
}

// A post fails, and so does a backend that takes calls. The update comes to an end, and says both.
func TestPostFailsInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		refused := &dataplane.Error{Status: http.StatusInternalServerError, Message: "no space left on device"}
		s.f.fake.post = func(string, dataplane.PostOptions) (dataplane.Posted, error) { return dataplane.Posted{}, refused }
		s.f.refused[backendName(3)] = true
		stormOn(s, manyBackends)
		s.want[0].Weight = 7
		err := s.finish()
		if err == nil || !strings.Contains(err.Error(), "no space left") || s.f.posts > 1 {
			t.Errorf("after %d updates and %d posts: %v", s.parts, s.f.posts, err)
		}
	})
}

// A backend failed, and what it should have is taken back before the end of the round: there is nothing to report.
func TestErrorThatIsOverIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.f.refused[backendName(0)] = true
		before := slices.Clone(s.want[:slotsEach])
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || !s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		s.want = slices.Clone(s.want)
		copy(s.want, before)
		if err := s.finish(); err != nil {
			t.Error(err)
		}
	})
}

// aged is a timed API that takes addresses by posts only.
type aged struct{ *timed }

func (a aged) SetServer(ctx context.Context, backend, name string, ch dataplane.ServerChange) (dataplane.Server, error) {
	ch.Address = ""
	return a.timed.SetServer(ctx, backend, name, ch)
}

// The API is replaced by an older version in the middle. It answers 200 to calls that change addresses, and a post makes the
// changes then.
func TestAPIIsDowngradedInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || !s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		s.i.API, s.f.version = aged{s.f}, "v3.2.5"
		began := time.Now()
		for s.finish() != nil && time.Since(began) < time.Minute {
		}
		if took := time.Since(began); took > 20*time.Second || !s.have.Has(s.want) {
			t.Errorf("after %s, the worker has what it should: %t, with %d posts", took, s.have.Has(s.want), s.f.posts)
		}
	})
}

// Many servers do not get their addresses: the update waits for the first ones only.
func TestManyDeafBackends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.i.API = aged{s.f}
		stormOn(s, manyBackends)
		began := time.Now()
		if err := s.finish(); err == nil || time.Since(began) > 20*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// Entries of maps cannot be set. That does not hold up endpoints, and is not tried with each part.
func TestOthersFailInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		stormOn(s, manyBackends)
		tries, failed := 0, 0
		want := wanted(bound(1, s.want))
		want.Entries = "other"
		broken := errors.New("broken")
		want.Bind = func() (bind.Bound, error) { tries++; return bind.Bound{}, broken }
		for parts := 0; parts == 0 || s.have.Unfinished; parts++ {
			have, err := s.i.Update(t.Context(), want, s.have)
			if err != nil {
				failed++
			}
			if s.have = have; !have.Unfinished && !errors.Is(err, broken) {
				t.Errorf("error after the last part: %v", err)
			}
		}
		if tries != 2 || failed != 2 || !s.have.Has(s.want) {
			t.Errorf("%d tries, %d errors", tries, failed)
		}
	})
}

// unasked is an API whose version cannot be asked for.
type unasked struct {
	*timed
	times *int
}

func (u unasked) Info(context.Context) (dataplane.APIInfo, error) {
	*u.times++
	return dataplane.APIInfo{}, classed{dataplane.ErrUnavailable}
}

// The version of the API is asked for once in an update, even if there is no answer.
func TestVersionIsAskedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		times := 0
		s.i.API = unasked{s.f, &times}
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || times > 1 {
			t.Errorf("it was asked for %d times: %v", times, err)
		}
	})
}

// A failure is reported even if the changes of others never end.
func TestErrorIsReportedInAnEndlessStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.f.refused[backendName(0)] = true
		began, told := time.Now(), 0
		for n := 0; time.Since(began) < 2*tellInterval; n++ {
			for b := range manyBackends {
				s.replace(b, fmt.Sprintf("10.1.%d.%d", b, n))
			}
			if err := s.update(); err != nil {
				told++
			}
			if !s.have.Unfinished {
				t.Fatal("the storm is over")
			}
		}
		if told < 1 || told > 2 {
			t.Errorf("it was reported %d times", told)
		}
	})
}

// A push takes over what an update left unfinished. That a backend failed before is no failure of the push.
func TestPushAfterAPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStormy(t)
		s.i.Override = new(RunningOverride)
		s.f.refused[backendName(0)] = true
		stormOn(s, manyBackends)
		if err := s.update(); err != nil || !s.have.Unfinished {
			t.Fatalf("unfinished %t, %v", s.have.Unfinished, err)
		}
		delete(s.f.refused, backendName(0))
		done, err := s.i.ApplyAtRuntime(t.Context(), bound(2, s.want), bound(1, s.want), s.have, CertificateHashes{})
		if err != nil || !done.Running.Has(s.want) {
			t.Errorf("all is done: %t, %v", done.Running.Has(s.want), err)
		}
	})
}
