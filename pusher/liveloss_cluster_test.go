package pusher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// follows follows a cluster for one snapshot.
type follows struct {
	t *testing.T
	*binding.Sources
	cluster Cluster
	read    bool // set once the whole cluster was read
}

// followCluster begins like a pusher whose state has one endpoint for each of two Services.
func followCluster(t *testing.T, server *apiServer) *follows {
	t.Helper()
	s := snapshots.Snapshot{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(
		"backend a\n    #hapsnap servers shop/web:http\nbackend b\n    #hapsnap servers blog/web:http\n")}}}
	directives, err := bind.Directives(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	slots, _ := bind.AssignSlots(nil, directives, map[snapshots.ServicePort][]snapshots.Endpoint{
		sp("shop/web:http"): {{Address: "10.0.0.1", Port: 80}}, sp("blog/web:http"): {{Address: "10.0.0.2", Port: 80}},
	}, now, 0)
	none := binding.NewRefusals(nil, nil)
	f := &follows{t: t, Sources: binding.NewSources(binding.New(slots, binding.FromCluster, none), none, nil, nil, now), cluster: server.connect()}
	f.Use(map[snapshots.ID]snapshots.Snapshot{{Revision: 1, Short: "aaaaaaaaaa"}: s}, now)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.cluster.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	f.cluster.Want(f.Wanted())
	return f
}

// until waits until the known endpoints are these, and the endpoints that are kept are these.
func (f *follows) until(what, want string) {
	f.t.Helper()
	text := func() string {
		_, _, kept := f.Kept()
		return fmt.Sprint(f.Endpoints(), " kept ", kept)
	}
	end := time.After(patience)
	for text() != want || !f.read {
		select {
		case <-f.cluster.Changes():
			change := f.cluster.Take()
			if change.Status != nil {
				f.read = len(change.Status.Waits) == 0
			}
			f.TakeCluster(change, time.Now())
		case <-end:
			f.t.Fatalf("%s: known is %s, want %s", what, text(), want)
		}
	}
}

func webSlice(namespace, address string) *discoveryv1.EndpointSlice {
	s := sliceOf(address)
	s.Namespace = namespace
	return s
}

// A deletion that a watch reports counts at once. If a list of a whole namespace lacks endpoints,
// they are kept, also when the pusher starts.
func TestLossesOfACluster(t *testing.T) {
	t.Parallel()
	const (
		both     = "map[blog/web:http:[{10.0.0.2 80 false}] shop/web:http:[{10.0.0.1 80 false}]] kept "
		shopOnly = "map[shop/web:http:[{10.0.0.1 80 false}]] kept []"
	)
	drop := func(s *apiServer, namespace string) {
		if err := s.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	for name, test := range map[string]struct {
		server []runtime.Object
		first  string
		then   func(*apiServer)
		want   string
		blind  bool
	}{
		"a deletion": {
			server: []runtime.Object{webSlice("shop", "10.0.0.1"), webSlice("blog", "10.0.0.2")}, first: both + "[]",
			then: func(s *apiServer) { drop(s, "blog") }, want: shopOnly,
		},
		"a list without it": {
			server: []runtime.Object{webSlice("shop", "10.0.0.1"), webSlice("blog", "10.0.0.2")}, first: both + "[]",
			then: func(s *apiServer) { s.leave(); drop(s, "blog"); s.comeBack() }, want: both + "[blog/web:http]",
		},
		"at the start, one is missing": {server: []runtime.Object{webSlice("shop", "10.0.0.1")}, first: both + "[blog/web:http]"},
		"at the start, one is empty": {
			server: []runtime.Object{webSlice("shop", "10.0.0.1"), func() runtime.Object {
				s := webSlice("blog", "")
				s.Endpoints, s.Ports = nil, nil
				return s
			}()}, first: shopOnly,
		},
		"another cluster": {first: both + "[blog/web:http shop/web:http]", blind: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(test.server...)
			f := followCluster(t, server)
			f.until("at first", test.first)
			if test.then != nil {
				eventually.Holds(t, "both are watched", func() bool { server.mu.Lock(); defer server.mu.Unlock(); return len(server.watches) == 2 })
				test.then(server)
				f.until("then", test.want)
			}
			if blind := f.Blind(func() bool { return false }, time.Now()); blind != test.blind {
				t.Errorf("the start is blind: %v", blind)
			}
		})
	}
}

// sp parses a Service port such as "a/x".
func sp(text string) snapshots.ServicePort {
	port, err := snapshots.ParseServicePort(text)
	if err != nil {
		panic(err)
	}
	return port
}
