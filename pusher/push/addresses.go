package push

import (
	"context"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// HAProxy 3.0 and later acknowledge a new address of a server before the server has it: a
// task of the worker sets it a moment later, or after many on a busy machine. A server that
// is made ready in between takes requests to the address of a spare slot, or of a pod that
// is gone, and a request that tries several such servers fails. So a server is made ready
// only when the worker is seen to have its address.
const (
	addressPatience = 2 * time.Second
	addressPoll     = 2 * time.Millisecond
)

// stages splits changes in two, the second of which may begin when the worker has the
// addresses of the first. First, servers that take no traffic get their addresses. Then
// those that are to take traffic do, and after them others stop.
func stages(list []change) (first, then []change) {
	for _, c := range list {
		between := c.between()
		if c.from != between {
			first = append(first, change{c.from, between, c.at})
		}
		if between != c.to {
			then = append(then, change{between, c.to, c.at})
		}
	}
	return first, then
}

// between returns what the server is between the stages of its change.
func (c change) between() bind.Server {
	serves, served := c.to.State == bind.SlotReady, c.from.State == bind.SlotReady
	between := c.to
	switch {
	case served && !serves:
		return c.from
	case serves && !served && c.moves():
		between.State = bind.SlotSpare
	case serves && !served:
		between.State = c.from.State
	}
	return between
}

// place gives a server its address, and returns what the worker says of the server when it
// has it, or when patience ends.
func (i Instance) place(ctx context.Context, s bind.Server, call dataplane.ServerChange) (dataplane.Server, error) {
	var server dataplane.Server
	there, err := i.patiently(ctx, func() (bool, error) {
		var err error
		if server, err = i.setServer(ctx, s, call); err != nil {
			return false, err
		}
		if server.Name == "" {
			server, err = i.find(ctx, s)
		}
		return server.Address == s.Address && server.Port == s.Port, err
	})
	if err == nil && !there {
		err = change{from: read(s, server), to: s}.undone()
	}
	return server, err
}

// find asks the worker for a server, the zero value if there is none.
func (i Instance) find(ctx context.Context, s bind.Server) (dataplane.Server, error) {
	list, err := i.API.Servers(ctx, s.Backend)
	if at := slices.IndexFunc(list, func(found dataplane.Server) bool { return found.Name == s.Name }); at >= 0 && err == nil {
		return list[at], nil
	}
	return dataplane.Server{}, err
}

// placed waits until the worker has the addresses of changes that were made, some of which
// it acknowledges early.
func (i Instance) placed(ctx context.Context, known []bind.Server, list []change) error {
	list = slices.DeleteFunc(slices.Clone(list), func(c change) bool { return !c.moves() })
	touched := spansOf(known, list)
	var left change
	there, err := i.patiently(ctx, func() (bool, error) {
		found, err := i.readBack(ctx, known, touched)
		if err != nil {
			return false, err
		}
		now := replaced(known, touched, found)
		n := slices.IndexFunc(list, func(c change) bool { return change{from: now[c.at], to: c.to}.moves() })
		if n >= 0 {
			left = change{from: now[list[n].at], to: list[n].to}
		}
		return n < 0, nil
	})
	if err == nil && !there {
		err = left.undone()
	}
	return err
}

// patiently calls done until it returns true or an error, or patience ends.
func (i Instance) patiently(ctx context.Context, done func() (bool, error)) (bool, error) {
	i.ReloadTimeout, i.Poll = min(i.ReloadTimeout, addressPatience), addressPoll
	return i.poll(ctx, done)
}
