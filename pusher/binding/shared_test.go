package binding

import (
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// A snapshot is bound once for all instances of a layout, as long as the live data is the same, and all lists of its
// servers are one list. What is bound is not kept once nobody uses it.
func TestInstancesShareWhatIsBound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := numbered(1, []string{"a"}, []string{"bb"})
	b := New(nil, FromDirectory, Refusals{})
	b.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	b.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{httpPort("a"): {{Address: "10.0.0.1", Port: 80}}}
	b.stale = true
	b.Assign(now, time.Minute)
	here := bind.Layout{Maps: "/maps", Certificates: "/certs", General: "/general"}
	there := bind.Layout{Maps: "/other", Certificates: "/certs", General: "/general"}
	bound := func(layout bind.Layout) bind.Bound {
		t.Helper()
		out, err := b.Unbound(s.ID(), layout).Bind()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	func() {
		first, second := b.Unbound(s.ID(), here), b.Unbound(s.ID(), here)
		x, err := first.Bind()
		y, err2 := second.Bind()
		if err != nil || err2 != nil || &x.Config[0] != &y.Config[0] || &x.Lines[0] != &y.Lines[0] {
			t.Errorf("two instances of a layout got two texts: %v, %v", err, err2)
		}
		z := bound(there)
		if &z.Config[0] == &x.Config[0] {
			t.Error("an instance of another layout got the same text")
		}
		for _, list := range [][]bind.Server{x.Servers, z.Servers} {
			if &list[0] != &b.prepared[s.ID()].Servers[0] {
				t.Error("there is another list of the servers")
			}
		}
		b.live.Endpoints[httpPort("a")] = []snapshots.Endpoint{{Address: "10.0.0.9", Port: 80}}
		b.changed[httpPort("a")] = true
		b.Assign(now, time.Minute)
		later := bound(here)
		if again, _ := second.Bind(); !slices.Equal(again.Servers, x.Servers) || slices.Equal(later.Servers, x.Servers) {
			t.Errorf("after a change of endpoints: %v, and for a decision before that %v", later.Servers, again.Servers)
		}
		runtime.KeepAlive(first)
	}()
	for range 2 { // the first one may have begun before
		runtime.GC()
	}
	for key, kept := range b.shared {
		if kept.Value() != nil {
			t.Errorf("what was bound for %v is kept without a user", key)
		}
	}
}

// Each change of the inputs is noticed, those of live data too that no list of servers shows.
func TestSharedOnlyForTheSameInputs(t *testing.T) {
	t.Parallel()
	all := bind.Inputs{
		Live:  bind.Live{Certificates: map[snapshots.SecretName][]byte{}, Values: map[bind.SecretKey]string{}, Fallback: []byte("a")},
		Slots: bind.Slots{}, Layout: bind.Layout{Maps: "/maps"},
	}
	if !sameInputs(all, all) {
		t.Error("the same inputs differ")
	}
	for name, edit := range map[string]func(*bind.Inputs){
		"certificates": func(i *bind.Inputs) { i.Live.Certificates = map[snapshots.SecretName][]byte{} },
		"expired":      func(i *bind.Inputs) { i.Live.Expired = map[snapshots.SecretName]bool{} },
		"versions":     func(i *bind.Inputs) { i.Live.Versions = map[string][]byte{} },
		"values":       func(i *bind.Inputs) { i.Live.Values = map[bind.SecretKey]string{} },
		"unread":       func(i *bind.Inputs) { i.Live.Unread = map[snapshots.SecretName]bool{} },
		"fallback":     func(i *bind.Inputs) { i.Live.Fallback = []byte("b") },
		"slots":        func(i *bind.Inputs) { i.Slots = bind.Slots{} },
		"layout":       func(i *bind.Inputs) { i.Layout.Maps = "/other" },
	} {
		other := all
		if edit(&other); sameInputs(all, other) {
			t.Errorf("other %s are not noticed", name)
		}
	} // Whatever live data there may be one day counts too.
	for n := range reflect.TypeFor[bind.Live]().NumField() {
		other := all
		field := reflect.ValueOf(&other.Live).Elem().Field(n)
		switch field.Kind() {
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		default:
			field.Set(reflect.Append(field, reflect.Zero(field.Type().Elem())))
		}
		if sameInputs(all, other) {
			t.Errorf("other %s are not noticed", reflect.TypeFor[bind.Live]().Field(n).Name)
		}
	}
}
