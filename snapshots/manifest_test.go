package snapshots

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/internal/yamltext"
)

func TestDecodeYAMLReadsOneDocument(t *testing.T) {
	for text, want := range map[string]error{
		"a: 1\n":                     nil,
		"---\na: 1\n":                nil,
		"# a comment\n---\na: 1\n":   nil,
		"a: 1\n---\n":                nil,
		"a: 1\n---\n# no more\n":     nil,
		"a: 1\n...\n":                nil,
		"{\"a\": 1}\n":               nil,
		"a: x & y\n":                 nil,
		"a: 'x &y'\n":                nil,
		"a: |\n  ---\n  &x\n":        nil,
		"a: 1\n---\na: 2\n":          errSecondDocument,
		"a: 1\r---\ra: 2\r":          errSecondDocument,
		"---\n---\na: 2\n":           errSecondDocument,
		"a: 1\n...\na: 2\n":          errSecondDocument,
		"{a: 1}\n{a: 2}\n":           errSecondDocument,
		"{\"a\": 1}{\"a\": 2}":       errSecondDocument,
		" a: 1\nb: 2\n":              errSecondDocument,
		"a: |\n  x\n---\na: 2\n":     errSecondDocument,
		"a: 1\n--- !!map\na: 2\n":    errSecondDocument,
		"a: &x 1\nb: *x\n":           errAlias,
		"a: [&x 1, *x]\n":            errAlias,
		"a:\n- &x 1\n- {b: *x}\n":    errAlias,
		"&x a: 1\nb: *x\n":           errAlias,
		"a: 1\nb:\n  &x c: 1\nd: *x": errAlias,
	} {
		var into map[string]any
		if err := DecodeYAML([]byte(text), 100, &into); !errors.Is(err, want) || (want == nil && (err != nil || into["a"] == nil)) {
			t.Errorf("%q: %v, %v; want %v", text, into, err, want)
		}
	}
	var into map[string]any
	if err := DecodeYAML([]byte("a: "+strings.Repeat("x", 100)), 100, &into); err == nil {
		t.Error("a text that is too large was read")
	}
}

// The fast parser reads what we write: it is plain.
func TestManifestsArePlain(t *testing.T) {
	d := Draft{Files: []File{{Path: ConfigFile, Content: []byte("global\n")}}, Subject: "+1 route (Ingress &shop/*)\n---\n", Time: noon}
	d.Provenance.Inputs = []Input{{APIVersion: "v1", Kind: "Service", Name: "&web"}}
	d.Quarantined = []Quarantined{{Kind: "Ingress", Name: "a", Reason: "line 1: *x\n--- is &no host"}}
	want := d.Number(1, ID{}).Manifest
	data, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseManifest(data)
	if err != nil || fmt.Sprint(got.Spec) != fmt.Sprint(want.Spec) {
		t.Errorf("read as %+v: %v\n%s", got.Spec, err, data)
	}
	d.Subject, d.Quarantined, d.Provenance.Inputs[0].Name = "+1 route", nil, "web"
	if data, err = d.Number(1, ID{}).Manifest.Marshal(); err != nil || !plain(data) {
		t.Errorf("not plain: %v\n%s", err, data)
	}
}

// A short text that expands to a very long one is refused before it is expanded.
func TestParseManifestTakesLittleMemory(t *testing.T) {
	bomb := "a: &a " + strings.Repeat("x", 60<<10) + "\nb: ["
	for name, text := range map[string]string{
		"aliases":     bomb + strings.Repeat("*a,", 20_000) + "]\n",
		"flow":        "spec: {files: [" + strings.Repeat("[],", 2<<20) + "]}\n",
		"nested":      "spec:\n" + strings.Repeat("- - - - - - - -\n", 400_000),
		"long":        "spec: " + strings.Repeat("x", MaxManifest),
		"large files": "apiVersion: " + APIVersion + "\nkind: Snapshot\nspec:\n  files:\n  - path: a\n    size: 5368709120\n",
		"many files":  "apiVersion: " + APIVersion + "\nkind: Snapshot\nspec:\n  files:\n" + strings.Repeat("  - path: a\n    size: 60000000\n", 10),
		"no size":     "apiVersion: " + APIVersion + "\nkind: Snapshot\nspec:\n  files:\n  - path: a\n    size: -1\n",
	} {
		t.Run(name, func(t *testing.T) {
			before := allocated()
			if _, err := ParseManifest([]byte(text)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("read: %v", err)
			}
			if took := allocated() - before; took > 64<<20 {
				t.Errorf("%d MiB were allocated for %d KiB", took>>20, len(text)>>10)
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestLargest(t *testing.T) {
	t.Parallel()
	var files []File
	for _, name := range strings.Split("a b c d e f g h i j k l", " ") {
		files = append(files, File{Path: name, Content: []byte("x")})
	}
	files[11].Content = []byte("xx")
	if got := Largest(files); got != "l 2, a 1, b 1, c 1, d 1, e 1, f 1, g 1, h 1, i 1" {
		t.Error(got)
	}
}

// Our own code writes inputs exactly as the library would.
func TestInputsAreWrittenAsTheLibraryDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{
		"", "web", "v1", "yes", "no", "on", "y", "Off", "N", "NULL", "False", "x", "null", "~", "true", "1e3", "0x1f", "1.5", ".inf", "2026-11-23", "12:30", "-", "--", "a-b", "a-",
		"a.b-c", "shop/web", "networking.k8s.io/v1", "00123", "123", "18446744073709551616", "0", "1_000", "&a", "*a", "a: b", "a #b", "a\nb", "a\n\nb\n",
		" a", "a ", "\t", "\u0085", "\x7f", "\u2028", "é", "é-é", "%", "@a", "`", "'", `"`, "{a}", "[a]", "a,b", "!a", "|", ">", "?", "- a", "=", "<<",
		"6f1e3c55-0a0b-4c4d-8e8f-000000000001", "11111111-1111-1111-1111-111111111111", "HERE-ARE-THE-INPUTS", strings.Repeat("a", 300),
		strings.Repeat("long words ", 30), strings.Repeat("a-b ", 30), "e-1", "E-1", "inf-1", "n-1", "2026-11-23T00:00:00Z", "a-b:c",
		"2026-13-23T00:00:00Z", "2026-11-23T25:00:00Z", "*.example", "*.a-b.example", "*", "**", "*.", "HERE-ARE-THE-CERTIFICATES",
		strings.Repeat("12e45678", 8), strings.Repeat("1234567a", 8), strings.Repeat("0123456e", 8), "0b" + strings.Repeat("10", 31), strings.Repeat("12345678", 8), "0c" + strings.Repeat("10", 31), strings.Repeat("d", 64),
	}
	word := func() string {
		switch r.IntN(4) {
		case 0:
			return fmt.Sprintf("app-%d", r.IntN(100000))
		case 1:
			var b strings.Builder
			for range r.IntN(12) {
				b.WriteByte("abyneEf01289-./: #'*_"[r.IntN(21)])
			}
			return b.String()
		default:
			return words[r.IntN(len(words))]
		}
	}
	written := 0
	for range 4_000 {
		var m Manifest
		m.Spec.Subject = word()
		m.Provenance.Trigger, m.Provenance.Author = word(), word()
		for range 1 + r.IntN(3) {
			m.Provenance.Inputs = append(m.Provenance.Inputs, Input{word(), word(), word(), word(), word(), word()})
		}
		for range r.IntN(3) {
			c := CertificateRef{File: word(), Use: Use(word()), Mode: CertificateMode(word()), Version: word()}
			if r.IntN(3) > 0 {
				c.Secret = SecretName{Namespace: word(), Name: word()}
			}
			if r.IntN(3) > 0 {
				c.Observed = &ObservedCertificate{Fingerprint: word()}
				for range r.IntN(3) {
					c.Observed.Names = append(c.Observed.Names, word())
				}
				if r.IntN(2) == 0 {
					c.Observed.NotAfter = time.Unix(r.Int64N(1<<33), r.Int64N(2)*r.Int64N(1e9)).UTC()
				}
			}
			m.Spec.Certificates = append(m.Spec.Certificates, c)
		}
		if r.IntN(9) == 0 {
			m.Provenance.Inputs = nil
		}
		want, err := yamltext.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Marshal()
		if err != nil || string(got) != string(want) {
			t.Fatalf("%v\ngot:\n%s\nwant:\n%s", err, got, want)
		}
		if r.IntN(8) > 0 {
			continue
		}
		// What somebody changed is read as the library reads it, or not at all.
		edited, at := slices.Clone(got), r.IntN(len(got))
		edited[at] = "ab -:\n\"'#0~"[r.IntN(11)]
		for _, text := range [][]byte{got, edited, slices.Concat(got[:at], got[at/2:])} {
			read, ok := readWritten(text)
			var library Manifest
			if err := DecodeYAML(text, MaxManifest, &library); ok && (err != nil || !reflect.DeepEqual(read, library)) {
				t.Fatalf("%v\nread:\n%+v\nthe library reads:\n%+v\nof:\n%s", err, read, library, text)
			}
			if ok {
				written++
			}
		}
	}
	if written < 150 {
		t.Errorf("%d manifests were read without the library", written)
	}
}

// The manifest of a large cluster costs a few allocations an object at most, with a UID and version for each,
// and a thousand certificates, written or read. The library alone takes over a hundred. Under the race detector, regular
// expressions allocate too.
func TestInputsCostLittle(t *testing.T) {
	var m Manifest
	for i := range 10_000 {
		m.Provenance.Inputs = append(m.Provenance.Inputs, Input{
			APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "shop", Name: fmt.Sprintf("app-%05d", i),
			UID: fmt.Sprintf("6f1e3c55-0a0b-4c4d-8e8f-%012d", i), ResourceVersion: fmt.Sprint(1000 + i),
		})
	}
	for i := range 1_000 {
		m.Spec.Certificates = append(m.Spec.Certificates, CertificateRef{
			File: fmt.Sprintf("certs/shop_tls-%05d.pem", i), Secret: SecretName{Namespace: "shop", Name: fmt.Sprintf("tls-%05d", i)},
			Observed: &ObservedCertificate{
				Fingerprint: fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(i)))), Names: []string{fmt.Sprintf("a%d.example", i), fmt.Sprintf("*.a%d.example", i)}, NotAfter: time.Unix(int64(i)*100_000, 0).UTC(),
			},
		})
	}
	m.APIVersion, m.Kind = APIVersion, ManifestKind
	text, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"written": func() error { _, err := m.Marshal(); return err },
		"read":    func() error { _, err := ParseManifest(text); return err },
	} {
		allocations := testing.AllocsPerRun(3, func() {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		})
		most := 40_000.0
		if race.Enabled {
			most = 150_000
		}
		if allocations > most {
			t.Errorf("%.0f allocations for 10,000 inputs and 1,000 certificates %s", allocations, what)
		}
	}
}

// The manifest of a cluster of any size can be written and read again: it lists as many objects as it has room
// for, and says how many more there were.
func TestInputsOfAnyNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{25_000, 60_000} {
		var d Draft
		for i := range n {
			d.Provenance.Inputs = append(d.Provenance.Inputs, Input{
				APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "team-0000", Name: fmt.Sprintf("app-%06d", i),
				UID: fmt.Sprintf("6f1e3c55-0a0b-4c4d-8e8f-%012d", i), ResourceVersion: fmt.Sprint(1_000_000 + i),
			})
			if i%20 == 0 {
				name := fmt.Sprintf("tls-%06d", i)
				d.Certificates = append(d.Certificates, CertificateRef{
					File: "certs/team_" + name + ".pem", Secret: SecretName{Namespace: "team-0000", Name: name},
					Observed: &ObservedCertificate{Fingerprint: strings.Repeat("ab", 32), Names: []string{"a.example", "b.example"}, NotAfter: time.Unix(1, 0)},
				})
			}
		}
		data, err := d.Number(1, ID{}).Manifest.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		m, err := ParseManifest(data)
		if err != nil {
			t.Fatal(err)
		}
		listed, omitted := len(m.Provenance.Inputs), m.Provenance.OmittedInputs
		if listed+omitted != n || (omitted > 0) != (n == 60_000) || listed < 25_000 || len(d.Provenance.Inputs) != n {
			t.Errorf("of %d objects %d are listed, and %d omitted", n, listed, omitted)
		}
	}
}
