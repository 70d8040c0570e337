package gitstore

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func delivering(o *Options) { o.Deliver = delivery.Target{Namespace: "edge", Name: "shop"} }

// checkout writes the tree of a commit into a folder, and returns the folder.
func (r repository) checkout(t *testing.T, commit string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "tree")
	runGit(t, r.path, nil, "worktree", "add", "--quiet", "--detach", folder, commit)
	return folder
}

// built returns the names of what plain kustomize makes of a folder, sorted.
func built(t *testing.T, folder string) []string {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects.Resources() {
		names = append(names, o.GetNamespace()+"/"+o.GetName())
	}
	slices.Sort(names)
	return names
}

// Each commit delivers its own snapshot. The files for the delivery are not part of the snapshot, also for
// readers and writers without a delivery.
func TestDeliveredTree(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	writer, reader := r.open(t, delivering), r.open(t)
	ids := []snapshots.ID{publish(t, writer, storetest.Draft("a")), publish(t, writer, storetest.Draft("b"))}
	for i, id := range ids {
		want := []string{"edge/shop-" + id.String()[:7], "edge/shop-" + id.String() + "-000", "edge/shop-status"}
		if got := built(t, r.checkout(t, "edge/"+id.String())); !slices.Equal(got, want) {
			t.Errorf("commit %d delivers %v, not %v", i, got, want)
		}
		got, err := reader.Get(t.Context(), id)
		if err != nil || len(got.Files) != len(storetest.Draft("a").Files) {
			t.Errorf("%s: %d files, %v", id, len(got.Files), err)
		}
		if again, err := r.open(t, delivering).Get(t.Context(), id); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s is another one where it is delivered: %v", id, err)
		}
	}
	if id, published, err := reader.Publish(t.Context(), storetest.Draft("b")); published || err != nil || id != ids[1] {
		t.Errorf("the same again: %s, %v", id, err)
	}
	publish(t, reader, storetest.Draft("c"))
	if files := r.git(t, "ls-tree", "-r", "--name-only", "edge"); strings.Contains(files, "kustomization") {
		t.Errorf("what delivers nothing leaves\n%s", files)
	}
	r.git(t, "fsck", "--strict")
}

// People can still read haproxy.cfg. In a log of changes, the delivery is one line.
func TestDeliveredTreeIsReadable(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t, delivering)
	publish(t, s, storetest.Draft("a"))
	publish(t, s, storetest.Draft("b"))
	if changed := r.git(t, "show", "--format=", "--numstat", "edge", "--", "configmaps"); changed != "-\t-\tconfigmaps/001-files.tar.gz" {
		t.Errorf("git shows %q", changed)
	}
	if changed := r.git(t, "show", "--format=", "edge", "--", "haproxy.cfg"); !strings.Contains(changed, "+backend b") {
		t.Errorf("git shows\n%s", changed)
	}
}

// A snapshot that cannot be delivered is not published.
func TestTooLargeToDeliver(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	large := make([]byte, 30<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large) // it cannot be compressed
	_, _, err := r.open(t, delivering).Publish(t.Context(), storetest.Draft("a", "files/large.bin", string(large)))
	if !errors.Is(err, sequence.ErrRefused) {
		t.Errorf("publish: %v", err)
	}
	if refs := r.git(t, "for-each-ref"); refs != "" {
		t.Errorf("there are\n%s", refs)
	}
}
