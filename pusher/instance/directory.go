package instance

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// Directory has whom to ask about a fleet's workers, for those who only look, such as the page. Anybody may ask
// it at any time: [Connections] keep it up to date, and nobody who pushes waits for it. nil has nobody.
type Directory struct {
	mu      sync.Mutex
	clients map[string]*dataplane.Client
}

// The bounds of one question: of instances that are asked, and of those at once.
const mostAsked, atOnce = 20, 8

// Servers asks instances for the servers of a backend, and returns what those said that answered until ctx is
// done, by name. Of a large fleet the first 20 are asked.
func (d *Directory) Servers(ctx context.Context, backend string) map[string][]dataplane.Server {
	d.mu.Lock()
	clients := maps.Clone(d.clients)
	d.mu.Unlock()
	names := slices.Sorted(maps.Keys(clients))
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	out := map[string][]dataplane.Server{}
	for _, name := range names[:min(len(names), mostAsked)] {
		all.Go(func() error {
			servers, err := clients[name].Servers(ctx, backend)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[name] = servers
			}
			return nil // who does not answer is not among them
		})
	}
	_ = all.Wait() // none fails
	return out
}

// set takes a client of an instance, in place of the one before; nil for an instance that left.
func (d *Directory) set(name string, client *dataplane.Client) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if client == nil {
		delete(d.clients, name)
		return
	}
	if d.clients == nil {
		d.clients = map[string]*dataplane.Client{}
	}
	d.clients[name] = client
}

// clear forgets all instances.
func (d *Directory) clear() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.clients)
}
