package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// fromMany is a draft that was compiled from this many objects. One of them has just changed.
func fromMany(objects, changed int) snapshots.Draft {
	d := storetest.Draft(fmt.Sprint("web", changed))
	for i := range objects {
		in := snapshots.Input{
			APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "shop", Name: fmt.Sprintf("app-%05d", i),
			UID: fmt.Sprintf("6f1e3c55-0a0b-4c4d-8e8f-%06d%06d", i*7919%1000000, i*104729%1000000), ResourceVersion: fmt.Sprint(1000 + i),
		}
		if i == changed {
			in.ResourceVersion = fmt.Sprint(900000 + i)
		}
		d.Provenance.Inputs = append(d.Provenance.Inputs, in)
	}
	return d
}

// If one object among many changes, the repository grows by a few kilobytes, and not by the list of all
// objects. Readers get the whole manifest.
func TestOneOfManyInputsCostsLittle(t *testing.T) {
	t.Parallel()
	r := newRepository(t, "transfer.fsckObjects=true", "receive.fsckObjects=true")
	s, reader := r.open(t), r.open(t)
	m := meddle(s)
	const objects = 10_000
	for n := range 4 {
		d := fromMany(objects, 2500*n)
		id := publish(t, s, d)
		got, err := reader.Get(t.Context(), id)
		if err != nil || !reflect.DeepEqual(got.Manifest.Provenance.Inputs, d.Provenance.Inputs) || got.Manifest.Provenance.InputsBeside != 0 {
			t.Fatalf("%v, %d inputs", err, len(got.Manifest.Provenance.Inputs))
		}
		manifest, err := reader.Manifest(t.Context(), id)
		if err != nil || !reflect.DeepEqual(manifest, got.Manifest) {
			t.Fatalf("%v: the manifest alone is another one", err)
		}
	}
	if m.packs[0] < 100_000 {
		t.Errorf("the first pack has %d bytes: nothing is shown", m.packs[0])
	}
	for n, size := range m.packs[1:] {
		if size > 30_000 {
			t.Errorf("change %d: a pack of %d bytes", n+1, size)
		}
	}
	if text := r.git(t, "show", "edge:snapshot.yaml"); !strings.Contains(text, "inputsBeside: 10000") || len(text) > 2000 {
		t.Error(text)
	}
}

// A delivery into a cluster has the manifest as one file.
func TestDeliveredManifestIsWhole(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	target, err := delivery.ParseTarget("edge/web")
	if err != nil {
		t.Fatal(err)
	}
	s := r.open(t, func(o *Options) { o.Deliver = target })
	id := publish(t, s, fromMany(2_000, 0))
	if text := r.git(t, "show", "edge:snapshot.yaml"); strings.Count(text, "kind: Ingress") != 2_000 {
		t.Errorf("%d inputs in a manifest of %d bytes", strings.Count(text, "kind: Ingress"), len(text))
	}
	if got, err := s.Get(t.Context(), id); err != nil || len(got.Manifest.Provenance.Inputs) != 2_000 {
		t.Errorf("%v, %d", err, len(got.Manifest.Provenance.Inputs))
	}
}

// If somebody changes the files beside the manifest, the commit is no snapshot.
func TestInputsThatSomebodyChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(folder string) error{
		"removed": os.RemoveAll,
		"one less": func(folder string) error {
			return os.Remove(filepath.Join(folder, "last.yaml"))
		},
		"one more": func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "more.yaml"), []byte("- apiVersion: v1\n  kind: Service\n  name: web\n"), 0o600)
		},
		"a link": func(folder string) error {
			return os.Symlink("last.yaml", filepath.Join(folder, "link.yaml"))
		},
		"a file": func(folder string) error {
			return errors.Join(os.RemoveAll(folder), os.WriteFile(folder, []byte("x"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			id := publish(t, r.open(t), fromMany(2_000, 0))
			work := filepath.Join(t.TempDir(), "work")
			runGit(t, t.TempDir(), nil, "clone", "--quiet", "--branch=edge", r.path, work)
			if err := change(filepath.Join(work, "inputs")); err != nil {
				t.Fatal(err)
			}
			runGit(t, work, nil, "add", "--all")
			runGit(t, work, nil, "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "--quiet", "--message=edit")
			runGit(t, work, nil, "push", "--quiet", "origin", "edge", "+HEAD:refs/tags/edge/"+id.String())
			if _, err := r.open(t).Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
				t.Error(err)
			}
		})
	}
}
