package binding

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

func TestMergeLive(t *testing.T) {
	t.Parallel()
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	data := func(slices int, certificates ...string) Objects {
		d := Objects{Slices: slices}
		d.Certificates = map[snapshots.SecretName][]byte{}
		for _, c := range certificates {
			d.Certificates[secret] = []byte(c)
		}
		return d
	}
	for name, test := range map[string]struct {
		old, read Objects
		edit      func(*Objects)
		doubted   bool // endpoints of its namespace are kept
		want      Objects
	}{
		"a Secret is renewed":              {old: data(1, "old"), read: data(1, "new"), want: data(1, "new")},
		"something could not be parsed":    {old: data(1, "old"), read: data(1), edit: func(d *Objects) { d.unsure = true }, want: data(1, "old")},
		"a Secret is gone":                 {old: data(1, "old"), read: data(1), want: data(1)},
		"and endpoints of its namespace":   {old: data(1, "old"), read: data(1), doubted: true, want: data(1, "old")},
		"and all slices":                   {old: data(1, "old"), read: data(0), want: data(1, "old")},
		"and there never were any":         {old: data(0, "old"), read: data(0), want: data(0)},
		"a Secret is broken":               {old: data(1, "old"), read: data(1), edit: func(d *Objects) { d.broken = map[snapshots.SecretName]bool{secret: true} }, want: data(1, "old")},
		"a broken Secret without a former": {old: data(0), read: data(0), edit: func(d *Objects) { d.broken = map[snapshots.SecretName]bool{secret: true} }, want: data(0)},
	} {
		if test.edit != nil {
			test.edit(&test.read)
		}
		got := mergeLive(test.old, test.read, func(namespace string) bool { return test.doubted && namespace == "shop" })
		if diff := cmp.Diff(test.want.Live, got.Live); diff != "" || got.Slices != test.want.Slices {
			t.Errorf("%s: merged otherwise, with %d slices (-want +got):\n%s", name, got.Slices, diff)
		}
	}
}

// A Secret decides who is let in, also by the keys that it does not have. A Secret that may be in an unreadable
// file counts as unchanged.
func TestMergeLiveSecrets(t *testing.T) {
	name := func(s string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: s} }
	data := func(there ...string) Objects {
		d := Objects{Slices: 1, secrets: map[snapshots.SecretName]bool{}}
		d.Authorities, d.Users = map[snapshots.SecretName][]byte{}, map[snapshots.SecretName][]htpasswd.User{}
		d.Values = map[bind.SecretKey]string{}
		for _, s := range there {
			d.secrets[name(s)] = true
			d.Authorities[name(s)], d.Users[name(s)] = []byte(s), []htpasswd.User{{Name: s}}
			d.Values[bind.SecretKey{Secret: name(s), Key: "key"}] = s
		}
		return d
	}
	emptied := data()
	emptied.secrets[name("a")] = true
	unsure := func(d Objects) Objects { d.unsure = true; return d }
	for test, c := range map[string]struct{ old, read, want Objects }{
		"gone":                      {data("a", "b"), data("b"), data("b")},
		"empty now":                 {data("a", "b"), emptied, data()},
		"perhaps gone":              {data("a", "b"), unsure(data("b")), data("a", "b")},
		"empty, and others unsure":  {data("a", "b"), unsure(emptied), data("b")},
		"new, where others are not": {data(), unsure(data("a")), data("a")},
	} {
		t.Run(test, func(t *testing.T) {
			got := mergeLive(c.old, c.read, func(string) bool { return false })
			if diff := cmp.Diff(c.want.Live, got.Live, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("merged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// The Secrets of a cluster come one by one; what their users cost is counted together.
func TestUsersOfAClusterAreCountedTogether(t *testing.T) {
	set := secretSet{}
	for _, name := range []string{"a", "b"} {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{}}
		for i := range 12 {
			s.Data["auth"] = fmt.Appendf(s.Data["auth"], "user%d:$2y$12$%s\n", i, strings.Repeat("a", 53))
		}
		set[snapshots.SecretName{Namespace: "shop", Name: name}] = secretData{}.follow(s)
	}
	for range 2 { // it leaves the Secrets as they are
		got := set.live()
		faults := got.faults[bind.Need{Use: snapshots.UseUsers, Secret: snapshots.SecretName{Namespace: "shop", Name: "b"}}]
		if len(got.Users) != 1 || len(faults) != 13 || !errors.Is(faults[0], live.ErrHashes) {
			t.Errorf("%d Secrets with users, and of b %v", len(got.Users), faults)
		}
	}
}

// Of a directory with many objects, a change has only one decoded, and the others are not kept as text with positions.
func TestObjectsAreDecodedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, address string) {
		t.Helper()
		text := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + name + ", namespace: shop, labels: {kubernetes.io/service-name: " + name + "}}\n" +
			"addressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [" + address + "]}]\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var reader manifests.Reader
	read := func(known decoded) (Objects, decoded) {
		t.Helper()
		set, err := reader.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		out, now := translate(set, known)
		for _, o := range set.Objects {
			if again := (discoveryv1.EndpointSlice{}); len(o.Decode(&again)) == 0 && len(again.Endpoints) > 0 {
				t.Errorf("the content of %s is kept", o)
			}
		}
		return out, now
	}
	write("a", "10.0.0.1")
	write("b", "10.0.0.2")
	_, known := read(nil)
	write("b", "10.0.0.3")
	out, now := read(known)
	if a, b := out.Endpoints[sp("shop/a:http")], out.Endpoints[sp("shop/b:http")]; len(a) != 1 || a[0].Address != "10.0.0.1" || len(b) != 1 || b[0].Address != "10.0.0.3" {
		t.Errorf("endpoints after a change: %v", out.Endpoints)
	}
	same := 0
	for id, object := range now {
		if known[id] == object {
			same++
		}
	}
	if same != 1 || len(now) != 2 {
		t.Errorf("%d of %d objects were not decoded again", same, len(now))
	}
}

// An object of a second file does not count while another file has one of its name. Once that one is gone, it counts with its
// whole content, which was decoded long before.
func TestObjectThatAnotherHidesForAWhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(file, address, certificate string) {
		t.Helper()
		text := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}\n" +
			"addressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [" + address + "]}]\n---\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: users, namespace: shop}\nstringData: {token: " + certificate + "}\n"
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFolder(dir)
	check := func(when, address, token string) {
		t.Helper()
		got, err := f.objects()
		if err != nil {
			t.Fatal(err)
		}
		key := bind.SecretKey{Secret: snapshots.SecretName{Namespace: "shop", Name: "users"}, Key: "token"}
		if web := got.Endpoints[sp("shop/web:http")]; len(web) != 1 || web[0].Address != address || got.Values[key] != token {
			t.Errorf("%s: endpoints %v, token %q, want %s and %q", when, got.Endpoints, got.Values[key], address, token)
		}
	}
	write("web.yaml", "10.0.0.1", "old")
	check("at first", "10.0.0.1", "old")
	write("new.yaml", "10.0.0.2", "new")
	check("with a second file", "10.0.0.2", "new")
	check("and nothing else", "10.0.0.2", "new")
	if err := os.Remove(filepath.Join(dir, "new.yaml")); err != nil {
		t.Fatal(err)
	}
	check("with the first file again", "10.0.0.1", "old")
	check("which stays", "10.0.0.1", "old")
}

// Whatever happens to the files, a directory that was read before is read as if it were new: files come, go, move, are replaced
// as a whole, as volumes of ConfigMaps are, and have objects that other files have too, or that nobody can read.
func TestFolderIsReadAsIfItWereNew(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random, root := rand.New(rand.NewPCG(seed, 1)), t.TempDir()
		dir := filepath.Join(root, "live")
		known := newFolder(dir)
		text := func() string {
			var out []string
			for range random.IntN(4) {
				name, n := random.IntN(3), random.IntN(3)
				out = append(out, []string{
					fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-%d, namespace: shop, labels: {kubernetes.io/service-name: web}}\n"+
						"addressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [10.0.%d.%d]}]\n", name, name, n),
					fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: s%d, namespace: shop}\nstringData: {token: t%d}\n", name, n),
					"apiVersion: v1\nkind: Secret\nmetadata: {name: s0, namespace: shop}\ndata: 7\n", "kind: {\n",
				}[[]int{0, 0, 0, 1, 1, 1, 2, 3}[random.IntN(8)]])
			}
			return strings.Join(out, "---\n")
		}
		must := func(err error) {
			t.Helper()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		file := func() string { return filepath.Join(dir, string(rune('a'+random.IntN(4)))+".yaml") }
		must(os.Symlink("data-0", dir))
		must(os.Mkdir(filepath.Join(root, "data-0"), 0o700))
		for step := range 60 {
			switch random.IntN(6) {
			case 0, 1:
				must(os.WriteFile(file(), []byte(text()), 0o600))
			case 2, 3:
				must(os.Remove(file()))
			case 4:
				must(os.Rename(file(), file()))
			default:
				next := fmt.Sprint("data-", step+1)
				must(os.CopyFS(filepath.Join(root, next), os.DirFS(dir)))
				must(os.MkdirAll(filepath.Join(root, next), 0o700))
				must(os.Symlink(next, dir+".new"))
				must(os.Rename(dir+".new", dir))
			}
			got, err := known.objects()
			want, wantErr := newFolder(dir).objects()
			if err != nil || wantErr != nil {
				t.Fatalf("seed %d, step %d: %v, %v", seed, step, err, wantErr)
			}
			if diff := cmp.Diff(want.Live, got.Live, cmpopts.EquateEmpty()); diff != "" || !slices.Equal(got.problems, want.problems) || got.unsure != want.unsure {
				t.Fatalf("seed %d, step %d, read otherwise (-want +got):\n%s\n%q, want %q", seed, step, diff, got.problems, want.problems)
			}
		}
	}
}

// The objects of a directory are decoded one by one: the contents of all of them, which take ten times the memory of
// their texts, are never there at the same time. What cannot be decoded keeps its content, by which the fault is found.
func TestFolderHoldsNoContents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var text strings.Builder
	for n := range 20 {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s%d, namespace: shop}\nstringData: {token: t%d}\n", n, n)
	}
	text.WriteString("---\napiVersion: v1\nkind: Secret\nmetadata: {name: wrong, namespace: shop}\ndata: 7\n")
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFolder(dir)
	set, err := f.reader.Read(dir)
	if err != nil || len(set.Objects) != 21 {
		t.Fatalf("read %d objects: %v", len(set.Objects), err)
	}
	for _, o := range set.Objects {
		var s corev1.Secret
		faults := o.Decode(&s)
		before, known := f.known[o.Identity()].(*corev1.Secret)
		switch {
		case o.Name == "wrong":
			if known || len(faults) == 0 {
				t.Errorf("%s: decoded as %v, with the faults %v", o, before, faults)
			}
		case s.Name != "" || !known || before.Name != o.Name || before.StringData["token"] != "t"+strings.TrimPrefix(o.Name, "s"):
			t.Errorf("%s: its content is %q, and decoded was %v", o, s.Name, before)
		}
	}
}
