package validate

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
)

// changesOfInput are those of what an input is bound to, by name. The input is that of [TestUnboundKeyTellsApart].
func changesOfInput(secret snapshots.SecretName) map[string]func(*Input) {
	return map[string]func(*Input){
		"content of a file": func(in *Input) { in.Artifact.Files[1].Content = []byte("never") },
		"content of a list": func(in *Input) { in.Artifact.Files[2].Content = []byte("a c") },
		"content that moved on": func(in *Input) {
			in.Artifact.Files[1].Content, in.Artifact.Files[2].Content = []byte("latera"), []byte(" b")
		},
		"name of a file": func(in *Input) { in.Artifact.Files[1].Path = "files/504.http" },
		"name of a map":  func(in *Input) { in.Artifact.Files[3].Path = "maps/path.map" },
		"another file":   func(in *Input) { in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: "files/a.http"}) },
		"another map":    func(in *Input) { in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: "maps/a.map"}) },
		"no map":         func(in *Input) { in.Artifact.Files = in.Artifact.Files[:3] },
		"another certificate": func(in *Input) {
			in.Artifact.Certificates = append(in.Artifact.Certificates, snapshots.CertificateRef{File: "certs/a.pem"})
		},
		"no certificate": func(in *Input) { in.Artifact.Certificates = nil },
		"kind of a key":  func(in *Input) { in.Keys[secret] = ECDSA },
		"no key":         func(in *Input) { delete(in.Keys, secret) },
		"name of a Secret": func(in *Input) {
			in.Artifact.Certificates[0].Secret.Name, in.Keys[snapshots.SecretName{Namespace: "shop", Name: "x"}] = "x", RSA
		},
		"namespace of a Secret": func(in *Input) {
			in.Artifact.Certificates[0].Secret.Namespace, in.Keys[snapshots.SecretName{Namespace: "x", Name: "web"}] = "x", RSA
		},
	}
}

// Nothing is bound again as long as this key is the same. So whatever changes what is bound changes the key, except for
// the content of maps: each file, each field of a reference to a certificate, the kind of a key, and HAProxy itself.
func TestUnboundKeyTellsApart(t *testing.T) {
	t.Parallel()
	haproxy := filepath.Join(t.TempDir(), "haproxy")
	if err := os.WriteFile(haproxy, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	secret := snapshots.SecretName{Namespace: "shop", Name: "web"}
	base := Input{
		Artifact: render.Artifact{
			Files: []snapshots.File{
				{Path: snapshots.ConfigFile, Content: []byte("global")}, {Path: "files/503.http", Content: []byte("later")},
				{Path: "files/https.crtlist", Content: []byte("a b")}, {Path: "maps/host.map", Content: []byte("a b")},
			},
			Certificates: []snapshots.CertificateRef{{File: "certs/shop_web.pem", Secret: secret, Use: snapshots.UseCertificate}},
		},
		Keys: map[snapshots.SecretName]KeyType{secret: RSA},
	}
	edited := func(edit func(*Input)) Input {
		in := base
		in.Artifact.Files, in.Artifact.Certificates, in.Keys = slices.Clone(base.Artifact.Files), slices.Clone(base.Artifact.Certificates), maps.Clone(base.Keys)
		edit(&in)
		return in
	}
	key := func(config byte, in Input) textKey {
		k, sure := unboundKey(haproxy, textKey{config}, in)
		if !sure {
			t.Fatal("no key")
		}
		return k
	}
	first := key(1, base)
	if key(1, edited(func(in *Input) { in.Artifact.Files[3].Content = []byte("c d") })) != first {
		t.Error("the content of a map is told apart")
	}
	others := changesOfInput(secret)
	for n := range reflect.TypeFor[snapshots.CertificateRef]().NumField() {
		if field := reflect.TypeFor[snapshots.CertificateRef]().Field(n); field.Type.Kind() == reflect.String {
			others["field "+field.Name] = func(in *Input) { reflect.ValueOf(&in.Artifact.Certificates[0]).Elem().Field(n).SetString("x") }
		}
	}
	if len(others) != 14+4 { // Observed is not bound, and the Secret is above
		t.Errorf("%d changes", len(others))
	}
	for name, edit := range others {
		if key(1, edited(edit)) == first {
			t.Errorf("%s is not told apart", name)
		}
	}
	if key(2, base) == first {
		t.Error("haproxy.cfg is not told apart")
	}
	if err := os.WriteFile(haproxy, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if key(1, base) == first {
		t.Error("HAProxy is not told apart")
	}
	if err := os.Remove(haproxy); err != nil {
		t.Fatal(err)
	}
	if _, sure := unboundKey(haproxy, textKey{1}, base); sure {
		t.Error("there is a key without HAProxy")
	}
}
