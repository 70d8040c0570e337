package ingress

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Of Services in order, those that changed are told, and no others. In any order, none of those is missed.
func TestChangedServices(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		before, now := map[types.NamespacedName]*corev1.Service{}, map[types.NamespacedName]*corev1.Service{}
		want := map[types.NamespacedName]bool{}
		for i := range 60 {
			name, same := types.NamespacedName{Namespace: fmt.Sprint("team-", i%7), Name: fmt.Sprint("app-", i)}, &corev1.Service{}
			before[name], now[name] = same, same
			switch r.IntN(12) {
			case 0:
				delete(before, name)
			case 1:
				delete(now, name)
			case 2:
				now[name] = &corev1.Service{}
			default:
				continue
			}
			want[name] = true
		}
		listed := func(of map[types.NamespacedName]*corev1.Service) (out []asking) {
			for _, name := range slices.SortedFunc(maps.Keys(of), objectname.Compare) {
				out = append(out, asking{name, of[name]})
			}
			return out
		}
		a, b := listed(before), listed(now)
		if got := changedServices(a, b); !maps.Equal(got, want) {
			t.Fatalf("seed %d: %v changed, want %v", seed, got, want)
		}
		r.Shuffle(len(a), func(i, j int) { a[i], a[j] = a[j], a[i] })
		got := changedServices(a, b)
		for name := range want {
			if !got[name] {
				t.Fatalf("seed %d: %v is missed", seed, name)
			}
		}
	}
	var many []asking
	for i := range mostChanged + 1 {
		many = append(many, asking{types.NamespacedName{Name: fmt.Sprint(i)}, &corev1.Service{}})
	}
	if changedServices(nil, many) != nil || len(changedServices(nil, many[1:])) != mostChanged || changedServices(many, many) == nil {
		t.Error("many changed Services are told, or few are not")
	}
}

// A translation is remembered once it has ended: reviews read what is remembered while the next steps of a translation would
// still add to it. Here a step after the claims panics.
func TestRememberedIsComplete(t *testing.T) {
	t.Parallel()
	in := inputs.Inputs{Secrets: []inputs.Object[corev1.Secret]{{Ref: diag.Object{Kind: "Secret", Namespace: "shop", Name: "standard"}}}}
	memo := NewMemo()
	defer func() {
		if recover() == nil || memo.last.Load() != nil {
			t.Error("nothing panics, or what is not complete is remembered")
		}
	}()
	memo.Translate(in, Config{DefaultCertificate: snapshots.SecretName{Namespace: "shop", Name: "standard"}})
}
