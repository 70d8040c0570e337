package pusher

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/pusher/cluster"
)

// apiServer is an API server in memory, which can be unreachable.
type apiServer struct {
	*fake.Clientset
	mu      sync.Mutex
	gone    bool
	watches []watch.Interface
}

var errNoAPIServer = errors.New("connection refused")

func newAPIServer(objects ...runtime.Object) *apiServer {
	s := &apiServer{Clientset: fake.NewClientset(objects...)}
	s.PrependReactor("list", "*", func(ktesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.gone {
			return true, nil, errNoAPIServer
		}
		return false, nil, nil
	})
	s.PrependWatchReactor("*", func(action ktesting.Action) (bool, watch.Interface, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.gone {
			return true, nil, errNoAPIServer
		}
		if a, ok := action.(ktesting.WatchActionImpl); ok && a.ListOptions.SendInitialEvents != nil {
			// An older API server refuses such a watch. The fake in memory would never end it.
			return true, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace())
		s.watches = append(s.watches, w)
		return true, w, err
	})
	return s
}

// leave cuts all connections, and refuses new ones until the server is back.
func (s *apiServer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

func (s *apiServer) comeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = false
}

// connect returns the connection of a new pusher.
func (s *apiServer) connect() Cluster {
	return cluster.New(cluster.Connection{Name: "memory", EndpointSlices: s.DiscoveryV1(), Secrets: s.CoreV1()}, false)
}

func sliceOf(address string) *discoveryv1.EndpointSlice {
	name, port := "http", int32(80)
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
}

// The API server is gone for an hour, and so is the store in its cluster. The pusher is restarted
// meanwhile. Instances stay as they are. They get the changes of that hour when the API server is
// back.
func TestFailureAPIServerGoneForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// If a watch was refused, client-go waits by the clock outside of the bubble. Nothing else
		// does.
		const outside = 100 * 365 * 24 * time.Hour
		crt, key, _ := newCertificate(t, time.Now().AddDate(200, 0, 0))
		server := newAPIServer(sliceOf("10.0.0.1"), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: webTLS.Namespace, Name: webTLS.Name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: crt, corev1.TLSPrivateKeyKey: key},
		})
		s := newStory(t)
		expect := func(want ...string) {
			t.Helper()
			if got := s.news(); !slices.Equal(got, want) {
				t.Errorf("there is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		begin := func() { s.options.Live, s.options.Cluster = "", server.connect(); s.begin() }
		s.command("publish 1")
		begin()
		expect("good 1, wanted 1", "a b c runs 1, serves [10.0.0.1], reloaded 1")

		s.ask("writes", "")
		server.leave()
		s.gone.Store(true)
		s.command("publish 2")
		if err := server.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), sliceOf("10.0.0.2"), "shop"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			pass(30 * time.Minute)
			s.holds()
			s.end()
			begin()
		}
		pass(time.Minute)
		s.holds()

		server.comeBack()
		s.gone.Store(false)
		s.shown = nil
		expect("good 2, wanted 2", "a b c runs 2, serves [10.0.0.2], reloaded 2")
		s.end()
		pass(outside)
	})
}

// holds checks that nothing was written to the instances, and that the status says why.
func (s *story) holds() {
	s.t.Helper()
	if writes := s.ask("writes", ""); len(writes) > 0 {
		s.t.Errorf("they got %q", writes)
	}
	said := map[string]bool{}
	for _, trouble := range s.seen().Troubles {
		said[trouble.About] = true
	}
	if !said["store"] || !said["cluster"] && !said["live"] {
		s.t.Errorf("of the API server nothing is said: %+v", s.seen().Troubles)
	}
}
