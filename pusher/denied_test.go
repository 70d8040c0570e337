package pusher

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// secretsInMemory is a state store that keeps the contents of Secrets in memory.
type secretsInMemory struct {
	*statestore.File
	mu   sync.Mutex
	data []byte
}

func (k *secretsInMemory) Take(ctx context.Context, fallback func() ([]byte, error)) (statestore.Taken, error) {
	taken, err := k.File.Take(ctx, fallback)
	taken.Secrets = k.kept()
	return taken, err
}

func (k *secretsInMemory) KeepSecrets(_ context.Context, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.data = data
	return nil
}

func (k *secretsInMemory) kept() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.data
}

// deny makes the API server list Secrets one by one by name, and refuse some of them.
func (s *apiServer) deny(names ...string) {
	s.PrependReactor("list", "secrets", func(action ktesting.Action) (bool, runtime.Object, error) {
		name, _ := action.(ktesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		if slices.Contains(names, name) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), name, nil)
		}
		found, err := s.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), action.GetNamespace(), name)
		if err != nil {
			return true, nil, err
		}
		return true, &corev1.SecretList{Items: []corev1.Secret{*found.(*corev1.Secret)}}, nil
	})
}

func opaqueSecret(name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{key: []byte(value), "unused": []byte("PRIVATE")}}
}

// If Secrets may not be read after a restart of the pusher, their users and authorities stay as
// they were. The same people are let in. The status says which Secrets may not be read.
func TestDeniedSecretsHoldWhatTheyHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	address := netip.MustParseAddrPort(echo(t, "one"))
	endpoints := sliceOf(address.Addr().String())
	*endpoints.Ports[0].Port = int32(address.Port())
	clients := pemtest.NewAuthority(t)
	client, stranger := clients.Client(t, "alice"), pemtest.NewAuthority(t).Client(t, "alice")
	objects := []runtime.Object{
		endpoints, opaqueSecret("auth", "auth", "alice:"+hashOfOne), opaqueSecret("keys", "token", "s3cret"), opaqueSecret("clients", "ca.crt", clients.PEM),
	}
	stateStore := &secretsInMemory{File: statestore.NewFile(r.options.State)}
	begin := func(denied ...string) {
		server := newAPIServer(objects...)
		server.deny(denied...)
		r.options.Live, r.options.Cluster, r.options.StateStore = "", server.connect(), stateStore
		r.run()
	}
	id := r.publish(config("1", guarded), guardedCertificates...)
	begin()
	r.allRun(id)
	letIn := func(when string) {
		t.Helper()
		if one, two := r.pass("/", "one", ""), r.pass("/", "two", ""); one != http.StatusOK || two != http.StatusUnauthorized {
			t.Errorf("%s: the password gets %d, another one %d", when, one, two)
		}
		if !r.admits(client) || r.admits(stranger) {
			t.Errorf("%s: certificates are admitted: %v, of strangers %v", when, r.admits(client), r.admits(stranger))
		}
	}
	letIn("at first")
	eventually.Holds(t, "what Secrets hold is kept", func() bool {
		kept := string(stateStore.kept())
		return strings.Contains(kept, `"auth"`) && strings.Contains(kept, `"ca.crt"`) && strings.Contains(kept, `"token"`)
	})
	if strings.Contains(string(stateStore.kept()), "unused") {
		t.Error("more is kept than snapshots need")
	}
	pids := r.workers()

	r.kill()
	begin("auth", "clients")
	s := r.until("it is said", func(s report.Status) bool {
		return slices.ContainsFunc(s.Troubles, func(t report.Trouble) bool {
			return t.About == report.AboutNeeds && strings.Contains(t.Error, "may not read Secret shop/auth") && strings.Contains(t.Error, "may not read Secret shop/clients")
		}) && statusOf(s, "a").InSync
	})
	letIn("denied")
	if !slices.Equal(r.workers(), pids) {
		t.Error("HAProxy was reloaded")
	}
	if !quiet(s) || strings.Contains(r.logged(), hashOfOne) || strings.Contains(r.logged(), "s3cret") {
		t.Error("the status or the log tells a secret")
	}
	eventually.Holds(t, "it is kept on", func() bool { return strings.Contains(string(stateStore.kept()), `"ca.crt"`) })

	r.kill()
	objects[1] = opaqueSecret("auth", "auth", "alice:"+hashOfTwo)
	begin()
	eventually.Holds(t, "what is read counts", func() bool { return r.pass("/", "two", "") == http.StatusOK })
	if got := r.pass("/", "one", ""); got != http.StatusUnauthorized {
		t.Errorf("the password of before gets %d", got)
	}
}
