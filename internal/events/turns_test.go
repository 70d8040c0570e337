package events

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func saidIn(namespace, object, text string) Event {
	e := said(object, text)
	e.Regarding = corev1.ObjectReference{Kind: "Ingress", Namespace: namespace, Name: object, UID: types.UID(namespace + object)}
	return e
}

// A tenant has a new fault for each Event that is written. Those of another one are written nevertheless, and renewed
// before the API server forgets them.
func TestRestlessNamespaceHoldsUpNoEventOfAnother(t *testing.T) {
	t.Parallel()
	l := newLedger()
	begin := time.Unix(1e9, 0)
	written := map[string]int{}
	for n := range 6000 {
		now := begin.Add(time.Duration(n) * time.Second)
		wanted := []Event{saidIn("a-restless", "web", fmt.Sprint("fault ", n)), saidIn("a-restless", "api", fmt.Sprint("fault ", n))}
		if n >= 100 {
			wanted = append(wanted, saidIn("shop", "web", "bad"))
		}
		l.wish(wanted, nil, now)
		if w, _, ok := l.next(now); ok {
			l.wrote(w.name, now)
			written[w.Regarding.Namespace]++
		}
		if n == 102 && written["shop"] != 1 {
			t.Fatal("the fault of another namespace has no Event yet")
		}
	}
	if written["shop"] != 1+3 { // 5900 s, and half an hour between renewals
		t.Errorf("the Event of another namespace was written %d times", written["shop"])
	}
}

// Namespaces take turns in a queue, also when it is filled anew. One of which nothing was due comes first then.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	var q Queue[string]
	namespace := func(text string) string { return text[:1] }
	take := func(n int, due func(string) bool) (out string) {
		for range n {
			one, ok := q.Next(due)
			if !ok {
				one = "-"
			}
			out += one + " "
		}
		return out
	}
	always := func(string) bool { return true }
	q.Fill([]string{"a1", "a2", "a3", "b1", "c1", "c2"}, namespace)
	if got := take(7, always); got != "a1 b1 c1 a2 c2 a3 - " {
		t.Errorf("got %s", got)
	}
	q.Fill([]string{"a1", "a2", "b1", "c1", "d1"}, namespace)
	if got := take(2, always); got != "b1 c1 " { // and not d1, which has just come
		t.Errorf("got %s", got)
	}
	q.Fill([]string{"a1", "b1", "c1"}, namespace)
	if got := take(3, func(one string) bool { return one != "c1" }); got != "a1 b1 - " {
		t.Errorf("got %s", got)
	}
	q.Fill([]string{"a1", "b1", "c1"}, namespace)
	if got := take(4, always); got != "c1 a1 b1 - " {
		t.Errorf("got %s", got)
	}
}

// A tenant has many namespaces, and each of them has a new fault in every other moment only. So it is new to the turns each
// time, which does not have it go first: the fault of another namespace has its Event nevertheless.
func TestNamespacesThatComeAndGoHoldUpNobody(t *testing.T) {
	t.Parallel()
	l := newLedger()
	var q Queue[string]
	begin := time.Unix(1e9, 0)
	waits := map[string]int{"Event": -1, "queue": -1}
	for n := range 100 {
		now := begin.Add(time.Duration(n) * time.Second)
		var wanted []Event
		var all []string
		for i := range 10 {
			if namespace := fmt.Sprint("a-tenant-", i); i%2 == n%2 {
				wanted, all = append(wanted, saidIn(namespace, "web", fmt.Sprint("fault ", n))), append(all, namespace)
			}
		}
		if n >= 10 {
			wanted, all = append(wanted, saidIn("shop", "web", "bad")), append(all, "shop")
		}
		l.wish(wanted, nil, now)
		if w, _, ok := l.next(now); ok {
			l.wrote(w.name, now)
			if w.Regarding.Namespace == "shop" {
				waits["Event"] = n - 10
			}
		}
		q.Fill(all, func(namespace string) string { return namespace })
		if next, _ := q.Next(func(string) bool { return true }); next == "shop" && waits["queue"] < 0 {
			waits["queue"] = n - 10
		}
	}
	for what, wait := range waits {
		if wait < 0 || wait > 10 {
			t.Errorf("%s: the other namespace waits for %d turns", what, wait)
		}
	}
}

// Events on objects that are in no namespace are written in the namespace default. Somebody who has new faults there all the
// time does not hold them up.
func TestRestlessNamespaceDefaultHoldsUpNoClusterScopedObject(t *testing.T) {
	t.Parallel()
	l := newLedger()
	begin := time.Unix(1e9, 0)
	for n := range 10 {
		now := begin.Add(time.Duration(n) * time.Second)
		l.wish([]Event{
			saidIn("default", "web", fmt.Sprint("fault ", n)), saidIn("default", "api", fmt.Sprint("fault ", n)), saidIn("", "class", "bad"),
		}, nil, now)
		w, _, ok := l.next(now)
		if !ok {
			t.Fatal("nothing is due")
		}
		if l.wrote(w.name, now); w.Regarding.Name == "class" {
			return
		}
	}
	t.Error("the Event on an object in no namespace is not written")
}
