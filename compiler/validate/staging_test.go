package validate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// withCertificates is an artifact with certificates of the Secrets with these numbers.
func withCertificates(t *testing.T, numbers ...int) validate.Input {
	t.Helper()
	m := model()
	m.Certificates = nil
	for _, n := range numbers {
		name := fmt.Sprintf("tls-%03d", n)
		m.Certificates = append(m.Certificates, routing.Certificate{
			File: "certs/shop_" + name + ".pem", Secret: snapshots.SecretName{Namespace: "shop", Name: name}, Hosts: []string{name + ".example"}, Origin: web,
		})
	}
	return validate.Input{Artifact: artifact(t, nil, m), Keys: map[snapshots.SecretName]validate.KeyType{}}
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// staged returns the files in the folders of checks, by name.
func staged(t *testing.T, temp string) map[string]os.FileInfo {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(temp, "hapsnap-validate-*", "certs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]os.FileInfo{}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = info
	}
	return out
}

func accepted(t *testing.T, c *validate.Checker, in validate.Input) {
	t.Helper()
	if v, err := c.Check(t.Context(), in); err != nil || len(v.Faults) > 0 {
		t.Fatalf("refused: %v, %v", err, v.Faults)
	}
}

// A check writes only the files of certificates that are new or have changed since the check before.
func TestCertificatesStayForTheNextCheck(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	c := find(t)
	end := c.Reuse()
	accepted(t, c, withCertificates(t, upTo(50)...))
	first := staged(t, temp)
	if len(first) < 50 {
		t.Fatalf("%d files stay", len(first))
	}
	other := withCertificates(t, append(upTo(49), 70)...)
	other.Keys[snapshots.SecretName{Namespace: "shop", Name: "tls-007"}] = validate.RSA
	accepted(t, c, other)
	second := staged(t, temp)
	var differ []string
	for name, info := range second {
		if before, ok := first[name]; !ok || !os.SameFile(before, info) || !before.ModTime().Equal(info.ModTime()) || before.Size() != info.Size() {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	if got := strings.Join(differ, " "); got != "shop_tls-007.pem shop_tls-070.pem" || second["shop_tls-049.pem"] != nil {
		t.Errorf("written: %s", got)
	}
	// A review concerns a part, and does not change what is kept for the whole.
	accepted(t, c, withCertificates(t, 1, 2))
	if third := staged(t, temp); len(third) != len(second) || !os.SameFile(third["shop_tls-001.pem"], second["shop_tls-001.pem"]) {
		t.Errorf("%d files stay after a small check", len(third))
	}
	end()
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("%v stays in the end", left)
	}
	accepted(t, c, withCertificates(t, upTo(50)...))
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("%v stays after the end", left)
	}
}

// The verdict equals that of a checker without memory, whatever happened to the folder, and whatever was
// checked before.
func TestVerdictsDoNotDependOnWhatStayed(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	keeping, fresh := find(t), find(t)
	defer keeping.Reuse()()
	r := rand.New(rand.NewPCG(1, 2))
	touches := []func(path string) error{
		os.Remove,
		func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		func(path string) error { return os.Truncate(path, 10) },
		func(path string) error { return os.Rename(path, path+".old") },
		func(path string) error { return os.Chmod(path, 0) },
		func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		func(path string) error { return os.RemoveAll(filepath.Dir(filepath.Dir(path))) },
		func(string) error { return nil },
	}
	refused := 0
	for turn := range 24 {
		numbers := r.Perm(60)[:40+r.IntN(20)]
		slices.Sort(numbers)
		in := withCertificates(t, numbers...)
		if turn%4 == 3 { // a file without a reference that existed a moment ago
			in.Artifact.Certificates = slices.Delete(slices.Clone(in.Artifact.Certificates), 7, 8)
		}
		got, err := keeping.Check(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		want, err := fresh.Check(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Faults) != len(want.Faults) {
			t.Fatalf("turn %d: %v, not %v", turn, got.Faults, want.Faults)
		}
		refused += len(want.Faults)
		paths, _ := filepath.Glob(filepath.Join(temp, "hapsnap-validate-*", "certs", "*.pem"))
		if len(paths) > 0 {
			if err := touches[turn%len(touches)](paths[r.IntN(len(paths))]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: the test tests little")
	}
}

// A verdict says what the artifact takes from Secrets, so that nobody has to read it for that.
func TestVerdictsSayWhatIsNeeded(t *testing.T) {
	t.Parallel()
	c := find(t)
	for _, n := range []int{0, 3} {
		in := withCertificates(t, upTo(n)...)
		v, err := c.Check(t.Context(), in)
		want, wrong := bind.Needs(snapshots.Snapshot{Files: in.Artifact.Files}.Config(), in.Artifact.Certificates)
		if err != nil || wrong != nil || v.Needs == nil || !slices.Equal(v.Needs, want) || len(want) < n {
			t.Errorf("%v, %v: it needs %v, want %v", err, wrong, v.Needs, want)
		}
	}
}
