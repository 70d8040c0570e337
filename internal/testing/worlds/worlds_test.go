package worlds_test

import (
	"reflect"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// Written manifests are read as the same objects, without problems.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]inputs.Inputs{"ingresses": worlds.Ingresses(620), "routes": worlds.Routes(40)} {
		dir := t.TempDir()
		if err := worlds.Write(dir, in); err != nil {
			t.Fatal(err)
		}
		set, err := manifests.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, found, ignored := inputs.Gather(set)
		if len(found)+len(ignored) > 0 {
			t.Errorf("%s: found %v, ignored %v", name, found, ignored)
		}
		if want := in.Provenance(); !reflect.DeepEqual(got.Provenance(), want) || len(want) < 60 {
			t.Errorf("%s: read %d objects, want %d alike", name, len(got.Provenance()), len(want))
		}
		if len(got.EndpointSlices) != len(in.EndpointSlices) || len(got.EndpointSlices[0].Value.Endpoints) != worlds.Endpoints {
			t.Errorf("%s: read %d EndpointSlices", name, len(got.EndpointSlices))
		}
	}
}

// A change does not modify the inputs from which it was made.
func TestChanges(t *testing.T) {
	t.Parallel()
	before := worlds.Ingresses(10)
	after := worlds.AddHost(worlds.Annotate(before, 5, "hapsnap.dev/timeout-server", "7s"), 5, "new.example")
	old, is := before.Ingresses[5].Value, after.Ingresses[5].Value
	if len(old.Annotations) != 0 || len(old.Spec.Rules) != 1 {
		t.Errorf("the former Ingress has %v and %d rules", old.Annotations, len(old.Spec.Rules))
	}
	if is.Annotations["hapsnap.dev/timeout-server"] != "7s" || is.Spec.Rules[1].Host != "new.example" || is.ResourceVersion == old.ResourceVersion || is.UID != old.UID {
		t.Errorf("got %+v", is)
	}
	if before.Ingresses[4].Value != after.Ingresses[4].Value {
		t.Error("another Ingress was copied")
	}
}

// Ingresses that share a certificate have the same namespace, and each certificate has all of its hosts.
func TestSharing(t *testing.T) {
	t.Parallel()
	for per, want := range map[int]int{2: 125, 10: 25, 16: 18} {
		in, names := worlds.IngressesSharing(250, per), map[string]bool{}
		for _, s := range in.Secrets {
			names[s.Ref.Namespace+"/"+s.Ref.Name] = true
		}
		if len(in.Secrets) != want || len(names) != want {
			t.Errorf("%d of %d each: %d certificates of %d names, want %d", 250, per, len(in.Secrets), len(names), want)
		}
		for _, ing := range in.Ingresses {
			if name := ing.Ref.Namespace + "/" + ing.Value.Spec.TLS[0].SecretName; !names[name] {
				t.Errorf("%d each: %s has no certificate %s", per, ing.Ref, name)
			}
		}
	}
}
