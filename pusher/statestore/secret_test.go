package statestore

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

// place is a namespace, with the pushers that keep their state there.
type place struct {
	*testing.T
	config    *rest.Config
	namespace string
}

func newPlace(t *testing.T) place {
	t.Helper()
	server := cluster.Server(t)
	return place{t, server.Config(), server.Namespace(t)}
}

func (p place) secrets(config *rest.Config) Client {
	p.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	return client.CoreV1().Secrets(p.namespace)
}

func (p place) pusher(holder string) *Secret {
	p.Helper()
	return New(p.secrets(p.config), p.namespace, "edge", holder)
}

func (p place) take(s *Secret) Taken {
	p.Helper()
	taken, err := s.Take(p.Context(), made("fallback"))
	if err != nil {
		p.Fatal(err)
	}
	return taken
}

func (p place) save(s *Secret, text string) {
	p.Helper()
	if err := s.Save(p.Context(), []byte(text)); err != nil {
		p.Fatal(err)
	}
}

func (p place) wantState(want string) {
	p.Helper()
	got, err := Read(p.Context(), p.secrets(p.config), p.namespace, "edge")
	if string(got) != want || (err != nil) != (want == "") {
		p.Errorf("the state is %q, want %q: %v", got, want, err)
	}
}

// edit changes the Secret without the pushers.
func (p place) edit(edit func(s *corev1.Secret)) {
	p.Helper()
	client := p.secrets(p.config)
	s, err := client.Get(p.Context(), "edge", metav1.GetOptions{})
	if err == nil {
		edit(s)
		_, err = client.Update(p.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
}

func (p place) delete() {
	p.Helper()
	client, err := kubernetes.NewForConfig(p.config)
	if err == nil {
		err = client.CoreV1().Secrets(p.namespace).Delete(p.Context(), "edge", metav1.DeleteOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
}

func made(text string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(text), nil }
}

// A successor gets the state in a higher term. The former pusher cannot save any more.
func TestTheStateIsOnesAtATime(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one, two := p.pusher("one"), p.pusher("two")
	if _, err := Read(t.Context(), p.secrets(p.config), p.namespace, "edge"); !errors.Is(err, ErrNone) {
		t.Errorf("before the first: %v", err)
	}
	if got := p.take(one); got.Term != 1 || got.State != nil || string(got.Fallback) != "fallback" {
		t.Errorf("the first gets %+v", got)
	}
	p.save(one, "first")
	p.save(one, "second")
	got, err := two.Take(t.Context(), made("another"))
	if err != nil || got.Term != 2 || string(got.State) != "second" || string(got.Fallback) != "fallback" {
		t.Errorf("the successor gets %+v: %v", got, err)
	}
	if err := one.Save(t.Context(), []byte("late")); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "secret:"+p.namespace+"/edge") {
		t.Errorf("the one before saves: %v", err)
	}
	if _, err := one.Raise(t.Context(), 9); !errors.Is(err, ErrTaken) {
		t.Errorf("the one before raises its term: %v", err)
	}
	p.wantState("second")
	p.save(two, "third")
	p.wantState("third")
}

// A pusher that can read the state leaves one that others can read.
func TestNoTermIsTheLast(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one := p.pusher("one")
	p.take(one)
	if term, err := one.Raise(t.Context(), math.MaxInt64); err == nil || term != 1 {
		t.Errorf("raised to %d: %v", term, err)
	}
	p.save(one, "first")
	if got := p.take(p.pusher("two")); got.Term != 2 || string(got.State) != "first" {
		t.Errorf("the successor gets %+v", got)
	}
	p.edit(func(s *corev1.Secret) { s.Data["term"] = []byte("9223372036854775807") })
	if _, err := p.pusher("three").Take(t.Context(), made("another")); err == nil || !strings.Contains(err.Error(), `its key term is "9223372036854775807"`) {
		t.Errorf("taken with the last term: %v", err)
	}
}

// If several pushers take the state at once, each gets a term of its own, and one keeps it.
func TestTakenByManyAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const many = 4
	all := make([]*Secret, many)
	terms := make(chan int64, many)
	for n := range all {
		all[n] = p.pusher(string(rune('a' + n)))
		go func() {
			taken, err := all[n].Take(t.Context(), made("fallback"))
			if err != nil {
				t.Error(err)
			}
			terms <- taken.Term
		}()
	}
	seen := map[int64]bool{}
	for range many {
		seen[<-terms] = true
	}
	if len(seen) != many || !seen[1] || !seen[many] {
		t.Errorf("the terms are %v", seen)
	}
	saved := 0
	for _, s := range all {
		if err := s.Save(t.Context(), []byte(s.holder)); err == nil {
			saved++
		} else if !errors.Is(err, ErrTaken) {
			t.Error(err)
		}
	}
	if saved != 1 {
		t.Errorf("%d could save", saved)
	}
}

// fallback returns the content of the Secret for the fallback certificate, "" if there is none.
func (p place) fallback() string {
	p.Helper()
	s, err := p.secrets(p.config).Get(p.Context(), "edge-fallback", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.Fatal(err)
	}
	return string(s.Data["fallback.pem"])
}

// earlier creates the Secret as the version before did: with the key in the state.
func (p place) earlier() {
	p.Helper()
	p.take(p.pusher("earlier"))
	p.edit(func(s *corev1.Secret) { s.Data["fallback.pem"] = []byte("earlier") })
	if err := p.secrets(p.config).(secretsClient).Delete(p.Context(), "edge-fallback", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
}

// The state has no key. The certificate is in another Secret, and all pushers use the same one.
func TestTheStateHasNoKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.take(p.pusher("one"))
	p.edit(func(s *corev1.Secret) {
		if _, has := s.Data["fallback.pem"]; has {
			t.Error("the key is in the Secret of the state")
		}
	})
	if got, err := p.pusher("two").Take(t.Context(), made("another")); err != nil || string(got.Fallback) != "fallback" || p.fallback() != "fallback" {
		t.Errorf("the next one has %q: %v", got.Fallback, err)
	}
}

// The contents of Secrets are kept beside the certificate, for the next pusher. A pusher of an earlier term can
// no longer write there, however long it was paused.
func TestSecretsAreKeptBesideTheCertificate(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one := p.pusher("one")
	if got := p.take(one); got.Secrets != nil {
		t.Errorf("at first there is %q", got.Secrets)
	}
	keep := func(s *Secret, data string) error { return s.KeepSecrets(p.Context(), []byte(data)) }
	if err := errors.Join(keep(one, "first"), keep(one, "second")); err != nil {
		t.Fatal(err)
	}
	two := p.pusher("two")
	if got := p.take(two); string(got.Secrets) != "second" || string(got.Fallback) != "fallback" {
		t.Errorf("the next pusher has %q and %q", got.Secrets, got.Fallback)
	}
	if err := keep(two, "third"); err != nil {
		t.Fatal(err)
	}
	if err := keep(one, "late"); !errors.Is(err, ErrTaken) {
		t.Errorf("the one before kept something: %v", err)
	}
	three := p.pusher("three")
	if got := p.take(three); string(got.Secrets) != "third" || string(got.Fallback) != "fallback" {
		t.Errorf("then there is %q and %q", got.Secrets, got.Fallback)
	}
	p.edit(func(s *corev1.Secret) {
		if _, has := s.Data["secrets.json"]; has {
			t.Error("it is in the Secret of the state")
		}
	})
	if err := p.secrets(p.config).(secretsClient).Delete(t.Context(), "edge-fallback", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := keep(p.pusher("four"), "x"); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("without the Secret, and the certificate: %v", err)
	}
	if err := keep(three, "fourth"); err != nil || p.fallback() != "fallback" {
		t.Errorf("without the Secret, which is to have %q: %v", p.fallback(), err)
	}
	if got := p.take(p.pusher("four")); string(got.Secrets) != "fourth" {
		t.Errorf("then there is %q", got.Secrets)
	}
}

// The certificate of the version before is moved, and a kill in between does not lose it. A pusher with the
// role of the version before goes on with what it has, and says why.
func TestTheKeyIsMoved(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		p := newPlace(t)
		p.earlier()
		doomed := &dying{Client: p.secrets(p.config), left: n}
		_, err := New(doomed, p.namespace, "edge", "doomed").Take(t.Context(), made("another"))
		if !errors.Is(err, errDied) {
			t.Fatalf("killed at its write %d: %v", n, err)
		}
		got := p.take(p.pusher("one"))
		if string(got.Fallback) != "earlier" || got.Unmoved != nil || p.fallback() != "earlier" {
			t.Errorf("killed at its write %d: then %q, %v", n, got.Fallback, got.Unmoved)
		}
		p.edit(func(s *corev1.Secret) {
			if _, has := s.Data["fallback.pem"]; has {
				t.Error("it is still in the state")
			}
		})
	}
	p := newPlace(t)
	p.earlier()
	denied := apierrors.NewForbidden(corev1.Resource("secrets"), "edge-fallback", errors.New("no role"))
	got, err := New(denying{p.secrets(p.config), denied}, p.namespace, "edge", "one").Take(t.Context(), made("another"))
	if err != nil || string(got.Fallback) != "earlier" || !apierrors.IsForbidden(got.Unmoved) {
		t.Errorf("without a right: %+v, %v", got, err)
	}
	if got := p.take(p.pusher("two")); string(got.Fallback) != "earlier" || p.fallback() != "earlier" {
		t.Errorf("with it: %+v", got)
	}
}

// If another program owns a Secret of that name, it is left alone.
func TestFallbackOfOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "edge-fallback"}, Data: map[string][]byte{"password": []byte("theirs")}}
	if _, err := p.secrets(p.config).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.pusher("one").Take(t.Context(), made("another")); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("error is %v", err)
	}
}

type secretsClient interface {
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

var errDied = errors.New("killed")

// dying is killed at a write: before it, or after it without an answer.
type dying struct {
	Client
	left int
}

func (d *dying) die(write func() (*corev1.Secret, error)) (*corev1.Secret, error) {
	switch d.left -= 2; {
	case d.left >= 0:
		return write()
	case d.left == -1:
		_, err := write()
		return nil, errors.Join(errDied, err)
	}
	return nil, errDied // everything after it fails too
}

func (d *dying) Create(ctx context.Context, s *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	return d.die(func() (*corev1.Secret, error) { return d.Client.Create(ctx, s, o) })
}

func (d *dying) Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	return d.die(func() (*corev1.Secret, error) { return d.Client.Update(ctx, s, o) })
}

// denying is not allowed to read the fallback certificate.
type denying struct {
	Client
	err error
}

func (d denying) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	if name == "edge-fallback" {
		return nil, d.err
	}
	return d.Client.Get(ctx, name, o)
}

// Changes that others make to the Secret do not end a term, unless they concern the state.
func TestOtherHands(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one := p.pusher("one")
	p.take(one)
	p.save(one, "first")
	p.edit(func(s *corev1.Secret) { s.Labels["team"] = "edge" })
	p.save(one, "second")
	p.wantState("second")
	p.edit(func(s *corev1.Secret) {
		if s.Labels["team"] != "edge" {
			t.Error("the label is gone")
		}
	})
	p.delete()
	p.save(one, "third")
	p.wantState("third")
	p.delete()
	if term, err := one.Raise(t.Context(), 41); err != nil || term != 42 {
		t.Errorf("raised to %d: %v", term, err)
	}
	p.wantState("third")
	if got := p.take(p.pusher("two")); got.Term != 43 {
		t.Errorf("after that is term %d", got.Term)
	}
}

// If the Secret was deleted and another pusher began anew, with a lower term, that one has the state.
func TestDeletedAndTaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.take(p.pusher("before"))
	one := p.pusher("one")
	p.take(one)
	p.delete()
	two := p.pusher("two")
	p.take(two)
	if err := one.Save(t.Context(), []byte("late")); !errors.Is(err, ErrTaken) {
		t.Errorf("error is %v", err)
	}
	p.save(two, "first")
}

// An empty Secret may be used. Any other one belongs to somebody else.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	client := p.secrets(p.config)
	if _, err := client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.take(p.pusher("one"))
	p.delete()
	if _, err := client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Data: map[string][]byte{"password": nil}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.pusher("one").Take(t.Context(), made("fallback")); err == nil || !strings.Contains(err.Error(), "no state of a pusher") {
		t.Errorf("error is %v", err)
	}
	if _, err := Read(t.Context(), client, p.namespace, "edge"); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("read: %v", err)
	}
}

// lossy loses the answers of writes.
type lossy struct {
	Client
	lost int
}

func (l *lossy) Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	s, err := l.Client.Update(ctx, s, o)
	if err == nil && l.lost > 0 {
		l.lost--
		return nil, errors.New("connection reset")
	}
	return s, err
}

// A write whose answer was lost is recognized as this pusher's own.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	client := &lossy{Client: p.secrets(p.config)}
	one := New(client, p.namespace, "edge", "one")
	p.take(one)
	client.lost = 1
	if err := one.Save(t.Context(), []byte("first")); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("error is %v", err)
	}
	p.save(one, "second")
	p.wantState("second")
	client.lost = 1
	if _, err := one.Raise(t.Context(), 7); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("error is %v", err)
	}
	if term, err := one.Raise(t.Context(), 7); err != nil || term != 8 {
		t.Errorf("raised to %d: %v", term, err)
	}
	p.save(one, "third")
	p.wantState("third")
}

// If the answer to a raise was lost, a save is still recognized as this pusher's own.
func TestSavedAfterALostRaise(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	client := &lossy{Client: p.secrets(p.config)}
	one := New(client, p.namespace, "edge", "one")
	p.take(one)
	client.lost = 1
	if _, err := one.Raise(t.Context(), 7); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("error is %v", err)
	}
	p.save(one, "first")
	p.wantState("first")
	if term, err := one.Raise(t.Context(), 7); err != nil || term != 8 {
		t.Errorf("raised to %d: %v", term, err)
	}
	p.save(one, "second")
	p.take(p.pusher("two"))
	if err := one.Save(t.Context(), []byte("late")); !errors.Is(err, ErrTaken) {
		t.Errorf("the one before saves: %v", err)
	}
}

// conflicting answers writes with a conflict.
type conflicting struct {
	Client
	left int
}

func (c *conflicting) Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	if c.left > 0 {
		c.left--
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, s.Name, errors.New("the object has been modified"))
	}
	return c.Client.Update(ctx, s, o)
}

// However many conflicts there are, a pusher that still has the state was not replaced. It saves later.
func TestConflictsAreNoSuccessor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	client := &conflicting{Client: p.secrets(p.config)}
	one := New(client, p.namespace, "edge", "one")
	p.take(one)
	for what, write := range map[string]func() error{
		"save":         func() error { return one.Save(t.Context(), []byte("lost")) },
		"raise":        func() error { _, err := one.Raise(t.Context(), 7); return err },
		"keep Secrets": func() error { return one.KeepSecrets(t.Context(), []byte("secrets")) },
	} {
		client.left = maxTries
		if err := write(); !apierrors.IsConflict(err) || errors.Is(err, ErrTaken) {
			t.Errorf("%s: error is %v", what, err)
		}
	}
	p.save(one, "first")
	p.wantState("first")
}

// A state that is too large for a Secret is refused, and the former one stays.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	one := p.pusher("one")
	p.take(one)
	p.save(one, "first")
	noise := make([]byte, 3<<20)
	seed := uint32(1)
	for n := range noise {
		seed = seed*1664525 + 1013904223
		noise[n] = byte(seed >> 24)
	}
	if err := one.Save(t.Context(), noise); err == nil || !strings.Contains(err.Error(), "and a Secret takes") {
		t.Errorf("error is %v", err)
	}
	p.wantState("first")
	p.save(one, strings.Repeat(`{"address":"10.0.0.1","port":80,"state":"ready"},`, 100_000))
}

// The rules are sufficient, and name the one Secret.
func TestTheRulesAreEnough(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	kubeconfig := cluster.Server(t).Grant(t, p.namespace, "pusher", Rules("edge"))
	var err error
	if p.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatal(err)
	}
	one := p.pusher("one")
	p.take(one)
	p.save(one, "first")
	p.wantState("first")
	if _, err := p.secrets(p.config).Get(t.Context(), "another", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another Secret: %v", err)
	}
}

// An unreachable API server is an ordinary error: it does not mean that another pusher took the state.
func TestWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	gone := errors.New("gone")
	p.config.Wrap(func(http.RoundTripper) http.RoundTripper { return failing{gone} })
	_, err := p.pusher("one").Take(t.Context(), made("fallback"))
	if !errors.Is(err, gone) || errors.Is(err, ErrTaken) {
		t.Errorf("take: %v", err)
	}
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestParse(t *testing.T) {
	t.Parallel()
	if name, err := Parse("secret:edge/pusher"); name.String() != "edge/pusher" || err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, bad := range []string{"", "secret:", "secret:edge", "secret:/pusher", "secret:edge/", "secret:a/b/c", "configmap:a/b", "a/b"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{}", strings.Repeat("state ", 1000)} {
		packed, err := pack([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := unpack(packed); err != nil || !bytes.Equal(back, []byte(text)) {
			t.Errorf("%q came back as %q: %v", text, back, err)
		}
		if _, err := unpack(packed[:len(packed)-1]); err == nil {
			t.Error("what was cut short was read")
		}
	}
	packed, err := pack(make([]byte, largestState+1)) // zeros, which compress to a few KiB
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(packed); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("what unfolds: %v", err)
	}
}
