package leak_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/snapshots"
)

// These are the values of the Secrets that the cases name.
const (
	password = "k3-Xw9_Qz7Lp2Rt8"
	odd      = `o"d\d %41 & ü:P4s5W0rd`
)

func secret(name string, t corev1.SecretType, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: t, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func secrets(m material) []*corev1.Secret {
	return []*corev1.Secret{
		secret("db", corev1.SecretTypeOpaque, map[string]string{
			"password": password, "odd": odd, "phrase": "correct horse battery staple",
			"file": "9fQ2-line-Break\r\n", "settings.yaml": "# settings\nlevel: debug\ntoken: \"tok-4f5C6d7E8f9G\"\n",
			"pin": "4711", "flag": "true", "user": "admin", "word": "secret", "short": "S3cr3",
			"address": "192.168.178.21", "address6": "2001:db8:85a3::8a2e:370:7334", "network": "10.20.30.40/29",
			"template": "T3xt-0f-Templates", "host": "sh0p-7f9c4d8b6.example",
			"chain": m.certificate, "mixed": "# ours\n" + m.certificate + "# end\n",
		}),
		secret("login", corev1.SecretTypeBasicAuth, map[string]string{"username": "x9Y8z7W6v5", "password": "p"}),
		secret("public", corev1.SecretTypeOpaque, map[string]string{"region": "eu3-Zone1-Rack2"}),
		secret("tls", corev1.SecretTypeTLS, map[string]string{"tls.crt": m.certificate, "ca.crt": m.certificate, "tls.key": m.other}),
		secret("users", corev1.SecretTypeOpaque, map[string]string{
			"auth": "alice:$2y$05$nq3Gp6YfkQ8kO6ZyHhYCxuWkd2dQ3KqZ0r6i5Q2mH4v8pQZl2kH1a\nbob:$5$saltsalt$FkKqm9pNFFfXqTtSBXkOZQ0GHbX4Yy1nOqVJEl1Tnh6\n",
		}),
	}
}

func index(m material) *leak.Index {
	var memo leak.Memo
	return memo.Index(secrets(m), leak.Public{
		Secrets: []snapshots.SecretName{{Namespace: "shop", Name: "public"}},
		Knows: func(value []byte) leak.Knowledge {
			if string(value) == "sh0p-7f9c4d8b6.example" || bytes.Contains([]byte("# T3xt-0f-Templates in one of them"), value) {
				return leak.Harmless
			}
			return leak.Unknown
		},
	})
}

// filled executes the template of a case.
func filled(t *testing.T, m material, text string) []byte {
	t.Helper()
	parsed, err := template.New("").Funcs(m.funcs()).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func corpus(t *testing.T, name string) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile("testdata/" + name)
	if err != nil || len(a.Files) == 0 {
		t.Fatal("no cases", err)
	}
	return a.Files
}

func describe(text []byte, f leak.Finding) string {
	plain := ""
	if f.Plain {
		plain = "plain: "
	}
	return fmt.Sprintf("%s%s at line %d", plain, f.What, 1+bytes.Count(text[:f.At], []byte("\n")))
}

func TestCorpusIsRefused(t *testing.T) {
	t.Parallel()
	m := newMaterial(t)
	for _, f := range corpus(t, "refused.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			want, text, _ := bytes.Cut(filled(t, m, string(f.Data)), []byte("\n"))
			var got []string
			for _, found := range index(m).Find(text) {
				got = append(got, describe(text, found))
			}
			if len(got) == 0 || got[0] != string(want) {
				t.Errorf("got %q, want %q first, in\n%s", got, want, text)
			}
		})
	}
}

func TestCorpusIsPassed(t *testing.T) {
	t.Parallel()
	m := newMaterial(t)
	for _, f := range corpus(t, "passed.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			text := filled(t, m, string(f.Data))
			for _, found := range index(m).Find(text) {
				t.Errorf("%s in\n%s", describe(text, found), text)
			}
		})
	}
}

// A private key of a Secret is found without its surroundings, from any of its lines.
func TestEveryLineOfAKeyIsFound(t *testing.T) {
	t.Parallel()
	m := newMaterial(t)
	x := index(m)
	lines := strings.Split(strings.TrimSpace(m.other), "\n")
	for i, line := range lines[1 : len(lines)-1] {
		found := x.Find([]byte("x " + line + " y"))
		if len(line) > 40 && (len(found) == 0 || found[len(found)-1].What != "the value of Secret shop/tls (key tls.key)" && found[0].What != "the value of Secret shop/tls (key tls.key)") {
			t.Errorf("line %d: %v", i+2, found)
		}
	}
}

func TestMemoKnowsChangedSecrets(t *testing.T) {
	t.Parallel()
	var memo leak.Memo
	one, other := secret("a", "", map[string]string{"x": "One-0f-These"}), secret("a", "", map[string]string{"x": "An0ther-0ne"})
	text := []byte("One-0f-These An0ther-0ne")
	for i, s := range []*corev1.Secret{one, one, other, one} {
		found := memo.Index([]*corev1.Secret{s}, leak.Public{}).Find(text)
		if len(found) != 1 || (found[0].At == 0) != (s == one) {
			t.Errorf("%d: %v", i, found)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	m := newMaterial(t)
	x := index(m)
	for message, want := range map[string]string{
		`"` + password + `" is not a number`:                    `"(hidden)" is not a number`,
		password + ", " + password:                              "(hidden), (hidden)",
		"all is well":                                           "all is well",
		"no such ACL: 'correct horse battery staple'":           "no such ACL: '(hidden)'",
		strconv.Quote(odd) + " is not a number":                 "(hidden): it holds the value of Secret shop/db (key odd)",
		"-----BEGIN PRIVATE KEY-----\n" + password + " is what": "(hidden): it holds a private key",
	} {
		if got := x.Redact(message, "shop"); got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
	if got := x.Redact("correct horse battery staple", "other"); got != "correct horse battery staple" {
		t.Errorf("words of another namespace: %q", got)
	}
	if got := (*leak.Index)(nil).Redact("x", ""); got != "x" {
		t.Error(got)
	}
}

// A tenant's short text may unpack to any size. It costs little, and is reported: the compiler must not run out
// of memory because of it, and an unchecked text does not count as harmless.
func TestTextsThatUnpackToTooMuch(t *testing.T) {
	large := []byte(strings.Repeat(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("no key", 1000)))+"\n", 50<<20/8000))
	once := packed(t, large)
	for name, data := range map[string][]byte{
		"gzip":              once,
		"gzip in gzip":      packed(t, once),
		"many small pieces": bytes.Repeat(packed(t, []byte("a")), 2000),
		"only beginnings":   bytes.Repeat([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), 20_000),
	} {
		for form, text := range map[string]string{
			"as it is": string(data), "base64": "ok\nkey " + base64.StdEncoding.EncodeToString(data) + "\n",
		} {
			t.Run(name+", "+form, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				found := (*leak.Index)(nil).Find([]byte(text))
				runtime.ReadMemStats(&after)
				if len(found) != 1 || !strings.Contains(found[0].What, "compressed data") {
					t.Errorf("found %+v, want that it unpacks to too much", found)
				}
				if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
					t.Errorf("%d bytes of text took %d MiB", len(text), used>>20)
				}
			})
		}
	}
}

func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A file is searched again if it, or a Secret, is another one. A file with a value of a Secret always is, since it depends on
// other objects whether that value is secret.
func TestFilesAreSearchedOnce(t *testing.T) {
	t.Parallel()
	var memo leak.Memo
	one, other := secret("a", "", map[string]string{"x": "One-0f-These"}), secret("a", "", map[string]string{"x": "An0ther-0ne"})
	harmless := leak.Harmless
	public := leak.Public{Knows: func([]byte) leak.Knowledge { return harmless }}
	for _, step := range []struct {
		what, a, b string
		secret     *corev1.Secret
		secretly   bool // values are secret
		searched   int
		found      int
	}{
		{what: "at first", a: "text", b: "One-0f-These", secret: one, searched: 2},
		{what: "the same", a: "text", b: "One-0f-These", secret: one, searched: 1},
		{what: "a changed file", a: "other", b: "One-0f-These", secret: one, searched: 2},
		{what: "what was harmless is not", a: "other", b: "One-0f-These", secret: one, secretly: true, searched: 1, found: 1},
		{what: "without that value", a: "other", b: "text", secret: one, secretly: true, searched: 1},
		{what: "another Secret", a: "An0ther-0ne", b: "text", secret: other, secretly: true, searched: 2, found: 1},
		{what: "the file as it was before", a: "other", b: "text", secret: other, secretly: true, searched: 1},
		{what: "nothing new", a: "other", b: "text", secret: other, secretly: true},
	} {
		harmless = leak.Harmless
		if step.secretly {
			harmless = leak.Unknown
		}
		x := memo.Index([]*corev1.Secret{step.secret}, public)
		for range 2 { // as when a compile tries several times
			found := len(x.FindInFile("a", []byte(step.a))) + len(x.FindInFile("b", []byte(step.b)))
			if found != step.found {
				t.Errorf("%s: %d findings, want %d", step.what, found, step.found)
			}
			if strings.Contains(step.a+step.b, "0") {
				break // this one is searched each time
			}
		}
		if got := leak.Searched(x); got != step.searched {
			t.Errorf("%s: %d files were searched, want %d", step.what, got, step.searched)
		}
	}
}
