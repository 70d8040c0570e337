package delivery_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

// documents returns what kustomize makes of a snapshot, in a random order, for another namespace.
func documents(t *testing.T, s snapshots.Snapshot, namespace string, random *rand.Rand) []byte {
	t.Helper()
	fs := filesys.MakeFsInMemory()
	tree(t, fs, "/base", s)
	if err := fs.WriteFile("/overlay/kustomization.yaml", []byte("resources: [../base]\nnamespace: "+namespace+"\n")); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, r := range build(t, fs, "/overlay").Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return bytes.Join(all, []byte("---\n"))
}

func apply(t *testing.T, documents []byte, flags ...string) {
	t.Helper()
	kubectl, err := kubetest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--kubeconfig", cluster.Server(t).Kubeconfig(), "apply", "-f", "-"}, flags...)
	cmd := exec.CommandContext(t.Context(), kubectl, args...)
	cmd.Stdin = bytes.NewReader(documents)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply %v: %v\n%s", flags, err, out)
	}
}

// Whichever tool applies the ConfigMaps, also after another one, the result is the snapshot. Flux and Argo CD
// apply on the server; Argo CD does so only if an annotation says so.
func TestApplied(t *testing.T) {
	t.Parallel()
	for name, ways := range map[string][][]string{
		"on the server":    {{"--server-side", "--force-conflicts", "--field-manager=argocd-controller"}, {"--server-side", "--force-conflicts"}},
		"by the client":    {nil, nil},
		"by both, in turn": {nil, {"--server-side", "--force-conflicts"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := cluster.Server(t)
			namespace := server.Namespace(t)
			store, err := configmapstore.Open(configmapstore.Options{Config: server.Config(), Namespace: namespace, Name: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			order := rand.New(rand.NewPCG(1, 2))
			var ids []snapshots.ID
			for revision, backend := range []string{"a", "b"} {
				s := storetest.Draft(backend, "files/large.bin", random(500_000)).Number(uint64(revision)+1, snapshots.ID{})
				if _, err := store.Get(t.Context(), s.ID()); !errors.Is(err, snapshots.ErrNotFound) {
					t.Errorf("before: %v", err)
				}
				for _, flags := range ways {
					apply(t, documents(t, s, namespace, order), flags...)
				}
				if got, err := store.Get(t.Context(), s.ID()); err != nil || !reflect.DeepEqual(got, s) {
					t.Errorf("%s: %v", s.ID(), err)
				}
				ids = append(ids, s.ID())
			}
			if got, err := store.IDs(t.Context()); err != nil || !slices.Equal(got, ids) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
