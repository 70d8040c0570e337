package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/killtest"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	killtest.Main(func(args []string) (string, error) {
		config, err := clientcmd.BuildConfigFromFlags("", args[0])
		if err != nil {
			return "", err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return "", err
		}
		return "made", maker(client.CoreV1().Secrets(args[1]), args[1]).Once(context.Background(), noon.Add(Lifetime*2/3))
	})
	os.Exit(kubetest.Main(m, &cluster))
}

// maker fills the Secrets user and tls.
func maker(secrets Client, namespace string) *Maker {
	return New(Options{
		Namespace: namespace, Secrets: secrets, Log: slog.New(slog.DiscardHandler),
		Wanted: func(context.Context) ([]Wanted, error) {
			return []Wanted{{Secret: "user", Password: &Password{"username", "password"}}, certificate}, nil
		},
	})
}

// place is a namespace with Secrets as a chart makes them.
type place struct {
	*testing.T
	namespace string
	secrets   coreclient.SecretInterface
}

func newPlace(t *testing.T) place {
	t.Helper()
	server := cluster.Server(t)
	p := place{T: t, namespace: server.Namespace(t)}
	p.secrets = p.client(server.Config())
	for _, name := range []string{"user", "tls"} {
		p.create(name)
	}
	return p
}

func (p place) create(name string) {
	p.Helper()
	if _, err := p.secrets.Create(p.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}

func (p place) client(config *rest.Config) coreclient.SecretInterface {
	p.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	return client.CoreV1().Secrets(p.namespace)
}

func (p place) get(name string) *corev1.Secret {
	p.Helper()
	s, err := p.secrets.Get(p.Context(), name, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

func (p place) once(m *Maker, now time.Time) {
	p.Helper()
	if err := m.Once(p.Context(), now); err != nil {
		p.Fatal(err)
	}
}

// Several Makers that fill the same Secrets at once end with the same values. Nothing is written once
// everything is there.
func TestManyMakersMakeOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	seen := make([]*corev1.Secret, 8)
	var all sync.WaitGroup
	for i := range seen {
		all.Go(func() {
			if err := maker(p.secrets, p.namespace).Once(t.Context(), noon); err != nil {
				t.Error(err)
			}
			seen[i], _ = p.secrets.Get(t.Context(), "user", metav1.GetOptions{}) // nil fails below
		})
	}
	all.Wait()
	for _, s := range seen {
		if s == nil || len(s.Data["password"]) == 0 || !bytes.Equal(s.Data["password"], seen[0].Data["password"]) {
			t.Fatal("there are two passwords")
		}
	}
	tls := p.get("tls")
	if err := accepts(tls.Data, tls.Data, noon); err != nil {
		t.Error(err)
	}
	p.once(maker(p.secrets, p.namespace), noon.Add(time.Hour))
	if p.get("tls").ResourceVersion != tls.ResourceVersion || p.get("user").ResourceVersion != seen[0].ResourceVersion {
		t.Error("Secrets were written again")
	}
}

// The roles suffice, and allow no other Secret. A Secret that they do not allow is reported, and the other
// Secret is filled all the same.
func TestPermissions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create("other")
	server := cluster.Server(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.ServiceAccount(t, p.namespace, "pusher"))
	if err != nil {
		t.Fatal(err)
	}
	m := maker(p.client(config), p.namespace)
	if err := m.Once(t.Context(), noon); err == nil || strings.Count(err.Error(), "forbidden") != 2 {
		t.Errorf("without a role: %v", err)
	}
	grant := func(names ...string) {
		t.Helper()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: names[0]}, Rules: Rules(names...)}
		binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: names[0]}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.namespace, Name: "pusher"}}}
		if err := errors.Join(server.Client().Create(t.Context(), role), server.Client().Create(t.Context(), binding)); err != nil {
			t.Fatal(err)
		}
	}
	grant("tls")
	p.eventually("the certificate is made", func() error {
		if err := m.Once(t.Context(), noon); err == nil || strings.Count(err.Error(), "forbidden") != 1 || !strings.Contains(err.Error(), "Secret "+p.namespace+"/user: ") {
			return fmt.Errorf("with half of the roles: %w", err)
		}
		return nil
	})
	if len(p.get("tls").Data) == 0 {
		t.Error("no certificate")
	}
	grant("user")
	p.eventually("everything is made", func() error { return m.Once(t.Context(), noon) })
	if _, err := m.Secrets.Get(t.Context(), "other", metav1.GetOptions{}); err == nil {
		t.Error("another Secret may be read")
	}
}

// eventually waits for the API server, which learns of roles late.
func (p place) eventually(what string, check func() error) {
	p.Helper()
	eventually.Succeeds(p, what, check)
}

// A missing Secret is reported and not created. When it exists again, it is filled.
func TestGone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := maker(p.secrets, p.namespace)
	p.once(m, noon)
	before := p.get("user").Data["password"]
	if err := p.secrets.Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Once(t.Context(), noon); !errors.Is(err, errGone) {
		t.Errorf("without it: %v", err)
	}
	if _, err := p.secrets.Get(t.Context(), "user", metav1.GetOptions{}); err == nil {
		t.Error("it was made anew")
	}
	p.create("user")
	p.once(m, noon)
	if after := p.get("user").Data["password"]; len(after) == 0 || bytes.Equal(before, after) {
		t.Error("it has no password of its own")
	}
}

// Publish gets the authorities each time before the next certificate is served, and its refusal is reported.
func TestPublish(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := maker(p.secrets, p.namespace)
	var published []byte
	var refusal error
	m.Publish = func(_ context.Context, authorities []byte) error {
		if refusal == nil {
			published = authorities
		}
		return refusal
	}
	p.once(m, noon)
	first := p.get("tls").Data
	if !bytes.Equal(published, first[CAKey]) {
		t.Error("nothing was published")
	}
	p.once(m, noon.Add(Lifetime*2/3))
	if !bytes.Equal(published, p.get("tls").Data[CAKey]) || len(parseAll(published)) != 2 {
		t.Error("the next one was not published")
	}
	refusal = errors.New("not now")
	if err := m.Once(t.Context(), noon.Add(Lifetime*2/3+propagation)); !errors.Is(err, refusal) || !bytes.Equal(p.get("tls").Data[corev1.TLSCertKey], first[corev1.TLSCertKey]) {
		t.Errorf("it is served before it is trusted: %v", err)
	}
	refusal = nil
	p.once(m, noon.Add(Lifetime*2/3+propagation))
	if bytes.Equal(p.get("tls").Data[corev1.TLSCertKey], first[corev1.TLSCertKey]) || len(parseAll(published)) != 2 {
		t.Error("it is not served")
	}
}

// If a Maker is killed at any of its writes, the next one can go on with the Secrets, and existing values stay.
func TestKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	p := newPlace(t)
	met := false
	for n := 1; ; n++ {
		for _, name := range []string{"user", "tls"} {
			if err := p.secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			p.create(name)
		}
		m := maker(p.secrets, p.namespace)
		if n%2 == 0 { // or it renews what is there
			p.once(m, noon)
		}
		before := p.get("user").Data["password"]
		o := killtest.Run(t, killtest.KillSending, n/2+1, server.Kubeconfig(), p.namespace)
		if o.Failed {
			t.Fatalf("at %d (%s): %s", n, o.Point, o.Said)
		}
		met = met || o.Met
		left := p.get("user").Data["password"]
		p.once(m, noon.Add(Lifetime*2/3))
		after := p.get("user").Data["password"]
		if len(after) == 0 || (len(before) > 0 && !bytes.Equal(before, after)) || (len(left) > 0 && !bytes.Equal(left, after)) {
			t.Errorf("killed at %s: passwords %q, %q, %q", o.Point, before, left, after)
		}
		tls := p.get("tls").Data
		if err := accepts(tls, tls, noon.Add(Lifetime*2/3)); err != nil {
			t.Errorf("killed at %s: %v", o.Point, err)
		}
		if !o.Met && n%2 == 0 {
			break
		}
	}
	if !met {
		t.Error("nothing was killed")
	}
}
