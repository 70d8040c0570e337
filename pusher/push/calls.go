package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// runtime changes servers and map entries in the running worker, without a reload.
type runtime struct{ Instance }

// grouped returns changes by backend.
func grouped(list []change) [][]change {
	var out [][]change
	for n, c := range list {
		if n == 0 || list[n-1].to.Backend != c.to.Backend {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// callsAtOnce is how many calls of an update wait for an answer of the API at the same time. The API asks the worker with a
// connection for each, of which a worker takes ten, unless its configuration says otherwise.
const callsAtOnce = 4

// made is what calls have come to.
type made struct {
	tried  []change         // in no order
	calls  int              // how many calls were made
	told   answers          // the answer to the last call for each server
	failed map[string]error // of backends whose servers cannot be changed
}

// calling makes changes by calls, those of several backends at the same time.
type calling struct {
	runtime
	end time.Time // when no further change begins, zero for never

	mu sync.Mutex
	made
	errs     []error       // of backends
	fatal    []error       // of the instance
	patience time.Duration // for addresses
}

// setAll makes changes by calls, however long that takes.
func (i runtime) setAll(ctx context.Context, list []change) (made, error) {
	return i.setDirectly(ctx, readyFirst(list), time.Time{}, addressPatience)
}

// setDirectly changes servers until the time is over, zero for never. It makes at least one
// change, and those of a backend one after the other. If a server cannot be changed,
// setDirectly changes nothing more in its backend, but goes on with the other backends, since
// a backend belongs to one tenant. patience is how long a server may take to have its address.
func (i runtime) setDirectly(ctx context.Context, list []change, end time.Time, patience time.Duration) (made, error) {
	c := &calling{runtime: i, end: end, made: made{told: answers{}, failed: map[string]error{}}, patience: patience}
	var group errgroup.Group
	group.SetLimit(callsAtOnce)
	turns := map[string]chan struct{}{} // the last turn of each backend
	for _, turn := range grouped(list) {
		backend := turn[0].to.Backend
		before, done := turns[backend], make(chan struct{})
		turns[backend] = done
		group.Go(func() error {
			defer close(done)
			if before != nil {
				<-before
			}
			c.make(ctx, turn)
			return nil
		})
	}
	_ = group.Wait()
	if len(c.fatal) > 0 {
		return made{tried: c.tried}, errors.Join(c.fatal...)
	}
	if len(c.errs) > 0 {
		return c.made, several(c.errs)
	}
	return c.made, nil
}

// make makes changes in one backend.
func (c *calling) make(ctx context.Context, turn []change) {
	for _, ch := range turn {
		patience, ok := c.begin(ch)
		if !ok {
			return
		}
		var server dataplane.Server
		var err error
		calls := ch.calls()
		for _, call := range calls {
			if call.Address != "" {
				server, err = c.place(ctx, ch.to, call, patience)
			} else {
				server, err = c.setServer(ctx, ch.to, call)
			}
			if err != nil {
				break
			}
		}
		c.ended(ch, len(calls), server, err)
	}
}

// begin reports whether a change may begin, and how long to wait for an address.
func (c *calling) begin(ch change) (patience time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.fatal) > 0 || len(c.tried) > 0 && !c.end.IsZero() && time.Now().After(c.end) {
		return 0, false
	}
	c.tried = append(c.tried, ch)
	return c.patience, c.failed[ch.to.Backend] == nil
}

// ended notes how the calls of a change ended.
func (c *calling) ended(ch change, calls int, server dataplane.Server, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls += calls
	switch {
	case err == nil:
		c.told[serverKey{ch.to.Backend, ch.to.Name}] = server
	case isOfOne(err):
		c.failed[ch.to.Backend], c.patience = err, 0 // do not wait as long for the other servers
		c.errs = append(c.errs, err)
	default:
		c.fatal = append(c.fatal, err)
	}
}

// several joins the first few errors, and says how many more there are.
func several(errs []error) error {
	const most = 3
	if more := len(errs) - most; more > 0 {
		errs = append(slices.Clone(errs[:most]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// setServer makes a call. If a server tracks another one, its health cannot be set, since
// it has the health of that server. setServer then sets only the other fields.
func (i runtime) setServer(ctx context.Context, s bind.Server, call dataplane.ServerChange) (dataplane.Server, error) {
	server, err := i.API.SetServer(ctx, s.Backend, s.Name, call)
	if call.Up && errors.Is(err, dataplane.ErrUnavailable) {
		call.Up = false
		return i.API.SetServer(ctx, s.Backend, s.Name, call)
	}
	return server, err
}
