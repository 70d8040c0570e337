package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

func named(namespace, name string) snapshots.SecretName {
	return snapshots.SecretName{Namespace: namespace, Name: name}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	w := Wanted{Namespaces: []string{"shop", "blog", "shop"}, Secrets: []snapshots.SecretName{named("shop", "tls"), named("blog", "tls"), named("shop", "auth"), named("shop", "tls")}}
	for all, want := range map[bool]string{
		false: "EndpointSlices in blog, EndpointSlices in shop, Secret blog/tls, Secret shop/auth, Secret shop/tls",
		true:  "EndpointSlices, Secret blog/tls, Secret shop/auth, Secret shop/tls",
	} {
		var got []string
		for _, q := range Plan(w, all) {
			got = append(got, q.String())
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("all namespaces %v: %s", all, strings.Join(got, ", "))
		}
	}
	if got := Plan(Wanted{}, true); len(got) > 0 {
		t.Errorf("for nothing: %v", got)
	}
}

var errGone = errors.New("connection refused")

var errForbidden = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: "forbidden"}}

type queryState = kubewatch.QueryState

// slicesIn and secretAt are queries without a problem.
func slicesIn(namespace string, objects int) queryState {
	return queryState{Query: endpointSlices(namespace), Synced: true, Count: objects}
}

func secretAt(name string) queryState {
	return queryState{Query: secret(named("shop", name)), Synced: true}
}

func with(s queryState, edit func(*queryState)) queryState { edit(&s); return s }

func unsynced(s *queryState)  { s.Synced = false }
func refused(s *queryState)   { s.Err = errGone }
func forbidden(s *queryState) { s.Err = errForbidden }
func never(s *queryState)     { unsynced(s); forbidden(s) }

func TestStatus(t *testing.T) {
	t.Parallel()
	const held = ", what was known is held: "
	tests := map[string]struct {
		list    []queryState
		knows   bool // shop's endpoints and the Secret a
		read    bool // shop
		waits   []string
		trouble string
	}{
		"all is known":              {list: []queryState{slicesIn("shop", 1), secretAt("a")}, knows: true, read: true},
		"nothing is":                {list: []queryState{with(slicesIn("shop", 0), unsynced), with(secretAt("a"), unsynced)}, waits: []string{"EndpointSlices in shop", "Secret shop/a"}},
		"a Secret is not known yet": {list: []queryState{slicesIn("shop", 1), with(with(secretAt("a"), unsynced), refused)}, read: true, waits: []string{"Secret shop/a (connection refused)"}},
		"the API server is gone": {list: []queryState{with(slicesIn("shop", 1), refused), with(secretAt("a"), refused)}, knows: true, read: true,
			trouble: "nothing new is heard of EndpointSlices in shop and others" + held + "connection refused"},
		"a Secret may not be read":               {list: []queryState{slicesIn("shop", 1), with(secretAt("a"), never), secretAt("b")}, knows: true, read: true, trouble: "nothing new is heard of Secret shop/a" + held + "forbidden"},
		"no Secret may be read":                  {list: []queryState{slicesIn("shop", 1), with(secretAt("a"), never)}, read: true, waits: []string{"Secret shop/a (forbidden)"}},
		"a Secret may not be read any more":      {list: []queryState{slicesIn("shop", 1), with(secretAt("a"), forbidden)}, knows: true, read: true, trouble: "nothing new is heard of Secret shop/a" + held + "forbidden"},
		"the endpoints may not be read":          {list: []queryState{with(slicesIn("shop", 0), never), secretAt("a")}, knows: true, trouble: "nothing new is heard of EndpointSlices in shop" + held + "forbidden"},
		"the endpoints may not be read any more": {list: []queryState{with(slicesIn("shop", 1), forbidden), secretAt("a")}, knows: true, read: true, trouble: "nothing new is heard of EndpointSlices in shop" + held + "forbidden"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := statusOf(false, test.list)
			if knows := got.Knows(Wanted{Namespaces: []string{"shop"}, Secrets: []snapshots.SecretName{named("shop", "a")}}); knows != test.knows {
				t.Errorf("knows what is wanted: %v", knows)
			}
			if read := got.Read("shop"); read != test.read {
				t.Errorf("has read shop: %v", read)
			}
			if diff := cmp.Diff(test.waits, got.Waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if text := fmt.Sprint(got.Trouble); text != test.trouble && (got.Trouble != nil || test.trouble != "") {
				t.Errorf("trouble: %s", text)
			}
		})
	}
}

// A query that was never read and is forbidden differs from one without objects, and from one that is held.
func TestDenied(t *testing.T) {
	t.Parallel()
	wanted := Wanted{Namespaces: []string{"shop", "blog"}, Secrets: []snapshots.SecretName{named("shop", "a"), named("shop", "b")}}
	for name, test := range map[string]struct {
		all  bool
		list []queryState
		want string
	}{
		"all is known":           {list: []queryState{slicesIn("blog", 0), slicesIn("shop", 1), secretAt("a"), secretAt("b")}},
		"some may not be read":   {list: []queryState{with(slicesIn("blog", 0), never), slicesIn("shop", 1), with(secretAt("a"), never), secretAt("b")}, want: "may not list EndpointSlices in blog; may not read Secret shop/a"},
		"the only Secrets":       {list: []queryState{slicesIn("blog", 0), slicesIn("shop", 1), with(secretAt("a"), never), with(secretAt("b"), never)}, want: "may not read Secret shop/a; may not read Secret shop/b"},
		"not any more":           {list: []queryState{with(slicesIn("blog", 0), forbidden), slicesIn("shop", 1), with(secretAt("a"), forbidden), secretAt("b")}, want: "may not list EndpointSlices in blog; may not read Secret shop/a"},
		"no answer":              {list: []queryState{with(slicesIn("blog", 0), unsynced), with(with(slicesIn("shop", 1), unsynced), refused)}},
		"of another snapshot":    {list: []queryState{with(slicesIn("others", 0), never), with(secretAt("other"), never)}},
		"all namespaces at once": {all: true, list: []queryState{with(slicesIn("", 0), never)}, want: "may not list EndpointSlices in all namespaces"},
		"and they may be by now": {all: true, list: []queryState{slicesIn("", 0)}},
	} {
		got := strings.Join(statusOf(test.all, test.list).Denied(wanted), "; ")
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// With one watch for all namespaces, the state of each namespace is known.
func TestStatusOfAllNamespaces(t *testing.T) {
	t.Parallel()
	got := statusOf(true, []queryState{slicesIn("", 1)})
	if !got.Read("shop") || !got.Knows(Wanted{Namespaces: []string{"shop", "blog"}}) {
		t.Errorf("%+v", got)
	}
}
