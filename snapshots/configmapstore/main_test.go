package configmapstore

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	storetest.Main(openElsewhere)
	os.Exit(kubetest.Main(m, &cluster))
}

// openElsewhere opens the store edge in another process.
func openElsewhere(place string) (storetest.Store, error) {
	file, namespace, _ := strings.Cut(place, "#")
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	s, err := Open(Options{Config: config, Namespace: namespace, Name: "edge"})
	if err != nil {
		return nil, err
	}
	s.patience = 50 * time.Millisecond
	return s, nil
}

// place is a namespace for a test, with what tests do there without the stores.
type place struct {
	*testing.T
	server    *kubetest.Server
	namespace string
	client    client.Client
	config    *rest.Config
	gone      atomic.Bool // the API server is unreachable
}

func newPlace(t *testing.T) *place {
	t.Helper()
	server := cluster.Server(t)
	p := &place{T: t, server: server, namespace: server.Namespace(t), client: server.Client(), config: server.Config()}
	p.config.QPS = -1
	p.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if p.gone.Load() {
				return nil, errors.New("no route to host")
			}
			return next.RoundTrip(r)
		})
	})
	return p
}

// configOf returns the configuration of a service account with the permissions of the rules.
func (p *place) configOf(account string, rules []rbacv1.PolicyRule) *rest.Config {
	p.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.server.Grant(p.T, p.namespace, account, rules))
	if err != nil {
		p.Fatal(err)
	}
	return config
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// open opens the store edge. It waits only briefly for dead writers.
func (p *place) open(change ...func(*Options)) *Store {
	p.Helper()
	o := Options{Config: p.config, Namespace: p.namespace, Name: "edge"}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(o)
	if err != nil {
		p.Fatal(err)
	}
	s.patience = 50 * time.Millisecond
	return s
}

// objects returns one part of the store's objects.
func (p *place) objects(part string) []corev1.ConfigMap {
	p.Helper()
	var list corev1.ConfigMapList
	if err := p.client.List(p.Context(), &list, client.InNamespace(p.namespace), client.MatchingLabels{partLabel: part}); err != nil {
		p.Fatal(err)
	}
	return list.Items
}

func (p *place) object(name string) *corev1.ConfigMap {
	p.Helper()
	o := &corev1.ConfigMap{}
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: name}, o); err != nil {
		p.Fatal(err)
	}
	return o
}

// replace replaces an immutable object.
func (p *place) replace(o *corev1.ConfigMap) {
	p.Helper()
	if err := p.client.Delete(p.Context(), o); err != nil {
		p.Fatal(err)
	}
	o.ObjectMeta = metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations, OwnerReferences: o.OwnerReferences,
	}
	if err := p.client.Create(p.Context(), o); err != nil {
		p.Fatal(err)
	}
}
