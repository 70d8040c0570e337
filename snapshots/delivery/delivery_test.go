package delivery_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var target = delivery.Target{Namespace: "edge", Name: "shop"}

// random returns bytes that cannot be compressed.
func random(n int) string {
	out, source := make([]byte, n), rand.New(rand.NewPCG(1, 2))
	for i := range out {
		out[i] = byte(source.Uint32())
	}
	return string(out)
}

// tree writes a snapshot and the files that deliver it into a folder, as a git tree has them.
func tree(t *testing.T, fs filesys.FileSystem, folder string, s snapshots.Snapshot) {
	t.Helper()
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	files, err := target.Files(s, signature.Key{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(files, s.Files, []snapshots.File{{Path: snapshots.ManifestFile, Content: manifest}}) {
		if err := fs.WriteFile(filepath.Join(folder, f.Path), f.Content); err != nil {
			t.Fatal(err)
		}
	}
}

// build does what plain `kustomize build` does.
func build(t *testing.T, fs filesys.FileSystem, folder string) resmap.ResMap {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, folder)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// configMaps returns what was built, as it would be applied.
func configMaps(t *testing.T, built resmap.ResMap) map[string]*corev1.ConfigMap {
	t.Helper()
	out := map[string]*corev1.ConfigMap{}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var o corev1.ConfigMap
		if err := yaml.UnmarshalStrict(text, &o); err != nil {
			t.Fatal(err)
		}
		out[o.Name] = &o
	}
	return out
}

// kustomize makes exactly the objects that the store has after a delivery.
func TestKustomizeGivesTheConfigMaps(t *testing.T) {
	t.Parallel()
	many := storetest.Draft("web")
	many.Subject = "+1 route (Ingress shop/\"web\"): 100% = more\u2028"
	for i := range 5_000 {
		many.Quarantined = append(many.Quarantined, snapshots.Quarantined{Kind: "Ingress", Namespace: "shop", Name: fmt.Sprint(i), Reason: "it has no host"})
	}
	for name, d := range map[string]snapshots.Draft{
		"small": storetest.Draft("web"), "several chunks": storetest.Draft("web", "files/large.bin", random(1_000_000)), "a large manifest": many,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := d.Number(12, snapshots.ID{})
			want, err := configmapstore.Delivered("edge", "shop", s, signature.Key{})
			if err != nil {
				t.Fatal(err)
			}
			fs := filesys.MakeFsInMemory()
			tree(t, fs, "/tree", s)
			got := configMaps(t, build(t, fs, "/tree"))
			if len(got) != len(want) {
				t.Errorf("there are %d objects, not %d", len(got), len(want))
			}
			for _, o := range want {
				o.APIVersion, o.Kind, o.Namespace = "v1", "ConfigMap", "edge"
				if !reflect.DeepEqual(got[o.Name], o) {
					t.Errorf("%s differs: %v", o.Name, got[o.Name])
				}
			}
		})
	}
}

// A team with more to add builds the tree as a base.
func TestKustomizeAsABase(t *testing.T) {
	t.Parallel()
	fs := filesys.MakeFsInMemory()
	tree(t, fs, "/base", storetest.Draft("web").Number(1, snapshots.ID{}))
	overlay := "resources: [../base]\nnamespace: other\nlabels: [{pairs: {team: edge}}]\n"
	if err := fs.WriteFile("/overlay/kustomization.yaml", []byte(overlay)); err != nil {
		t.Fatal(err)
	}
	got := configMaps(t, build(t, fs, "/overlay"))
	if o := got["shop-r000001"]; o == nil || o.Namespace != "other" || o.Labels["team"] != "edge" || len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// The same snapshot gives the same bytes, which are in the golden files.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := storetest.Draft("web", "files/large.bin", random(300_000)).Number(12, snapshots.ID{})
	files, err := target.Files(s, signature.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := target.Files(s, signature.Key{}); err != nil || !reflect.DeepEqual(files, again) {
		t.Errorf("the second time they differ: %v", err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
		if !delivery.Owns(f.Path) {
			t.Errorf("%s is taken for a file of the snapshot", f.Path)
		}
	}
	if want := []string{"configmaps/001-files.tar.gz", "configmaps/002-files.tar.gz", "kustomization.yaml"}; !slices.Equal(paths, want) {
		t.Errorf("%v", paths)
	}
	golden(t, "testdata/kustomization.yaml", files[len(files)-1].Content)
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\n%s", path, err, got)
	}
}

// Owns does not match any file of a snapshot.
func TestOwns(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"kustomization.yaml": true, "configmaps": true, "configmaps/001-files.tar.gz": true,
		"snapshot.yaml": false, "haproxy.cfg": false, "maps/kustomization.yaml": false, "configmaps.yaml": false, "README.md": false,
	} {
		if delivery.Owns(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	for _, f := range storetest.Draft("web").Files {
		if delivery.Owns(f.Path) {
			t.Errorf("%s is passed over", f.Path)
		}
	}
}

func TestNoTarget(t *testing.T) {
	t.Parallel()
	if files, err := (delivery.Target{}).Files(storetest.Draft("web").Number(1, snapshots.ID{}), signature.Key{}); len(files) != 0 || err != nil {
		t.Errorf("%v, %v", files, err)
	}
}
