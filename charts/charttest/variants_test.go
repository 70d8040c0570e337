package charttest

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

// A variant is a file of values, rendered once for all tests.
type variant struct {
	name, values string
	once         sync.Once
	text         string
	err          error

	parse  sync.Once
	parsed []unstructured.Unstructured
}

var variants = sync.OnceValue(func() []*variant {
	paths, _ := filepath.Glob("../hapsnap/ci/*-values.yaml")
	var out []*variant
	for _, path := range paths {
		path, _ = filepath.Abs(path)
		out = append(out, &variant{name: strings.TrimSuffix(filepath.Base(path), "-values.yaml"), values: path})
	}
	return out
})

// all returns the variants.
func all(t *testing.T) []*variant {
	t.Helper()
	if len(variants()) < 20 {
		t.Fatalf("%d variants", len(variants()))
	}
	return variants()
}

// named returns the variant with a name.
func named(t *testing.T, name string) *variant {
	t.Helper()
	i := slices.IndexFunc(variants(), func(v *variant) bool { return v.name == name })
	if i < 0 {
		t.Fatalf("no variant %s", name)
	}
	return variants()[i]
}

// rendered returns the output of Helm 4, in a namespace with the variant's name.
func (v *variant) rendered(t *testing.T) string {
	t.Helper()
	v.once.Do(func() { v.text, v.err = Template(t, "helm", v.name, "--values", v.values) })
	if v.err != nil {
		t.Fatal(v.err)
	}
	return v.text
}

// objects returns the rendered objects. The caller may change them.
func (v *variant) objects(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	text := v.rendered(t)
	v.parse.Do(func() { v.parsed = Objects(t, text) })
	out := make([]unstructured.Unstructured, len(v.parsed))
	for i, o := range v.parsed {
		o.DeepCopyInto(&out[i])
	}
	return out
}

// component returns the object of a kind for a component.
func (v *variant) component(t *testing.T, kind, component string) (unstructured.Unstructured, bool) {
	t.Helper()
	for _, o := range v.objects(t) {
		if o.GetKind() == kind && o.GetLabels()["app.kubernetes.io/component"] == component {
			return o, true
		}
	}
	return unstructured.Unstructured{}, false
}

// Two renderings are equal, byte for byte, and both Helms render the same objects. Nothing is random or looked
// up.
func TestRendersAreEqual(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			again, err := Template(t, "helm", v.name, "--values", v.values, "--is-upgrade")
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(v.rendered(t), again); diff != "" {
				t.Errorf("another render differs:\n%s", diff)
			}
			three, err := Template(t, "helm3", v.name, "--values", v.values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(sorted(v.objects(t)), sorted(Objects(t, three))); diff != "" {
				t.Errorf("Helm 3 renders otherwise:\n%s", diff)
			}
		})
	}
}

// sorted sorts objects, since each Helm has an order of its own.
func sorted(objects []unstructured.Unstructured) []unstructured.Unstructured {
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(a.GetKind()+" "+a.GetNamespace()+" "+a.GetName(), b.GetKind()+" "+b.GetNamespace()+" "+b.GetName())
	})
	return objects
}

func TestLint(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			programs := []string{"helm"}
			if v.name == "everything" {
				programs = append(programs, "helm3")
			}
			for _, program := range programs {
				if _, err := Helm(t, program, "lint", "--strict", Chart(t), "--namespace", v.name, "--values", v.values); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// unequal are template functions that give another result each time, or that read a cluster.
var (
	unequal = regexp.MustCompile(`\b(rand[A-Z]\w*|gen[A-Z]\w*|lookup|htpasswd|bcrypt|derivePassword|uuidv4|now|ago|shuffle|getHostByName)\b`)
	action  = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	text    = regexp.MustCompile(`(?s)"(\\.|[^"\\])*"|/\*.*?\*/`)
)

// No template uses what could differ between two renderings.
func TestTemplatesAreDeterministic(t *testing.T) {
	t.Parallel()
	if !unequal.MatchString(`{{ randAlphaNum 8 }}`) {
		t.Error("randAlphaNum is not found")
	}
	for _, folder := range []string{"templates", "files"} {
		err := filepath.WalkDir(filepath.Join("../hapsnap", folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for _, a := range action.FindAllString(string(content), -1) {
				if found := unequal.FindString(text.ReplaceAllString(a, `""`)); found != "" {
					t.Errorf("%s: %s in %s", path, found, a)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
