package difference

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

const config = `global
defaults main
    mode http
backend shop_web_http from main
    balance roundrobin
    #hapsnap servers shop/web:http weight=90
    #hapsnap servers shop/next:http weight=10
`

// edited is the configuration with a replacement.
func edited(from, to string) string { return strings.Replace(config, from, to, 1) }

// mapped is the configuration with a map and its kind of look-up.
func mapped(lookup string) string {
	return config + "    http-request set-var(txn.x) path,map_" + lookup + "(maps/a.map)\nuserlist none\n"
}

// sideOf is a side with a configuration and other files: path, content, and so on.
func sideOf(config string, files ...string) Side {
	s := Side{Name: "side", Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte(config)}}}
	for i := 0; i < len(files); i += 2 {
		s.Files = append(s.Files, snapshots.File{Path: files[i], Content: []byte(files[i+1])})
	}
	return s
}

var web = snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}

// endpoints returns n endpoints of shop/web.
func endpoints(n int) map[snapshots.ServicePort][]snapshots.Endpoint {
	list := []snapshots.Endpoint{}
	for i := range n {
		list = append(list, snapshots.Endpoint{Address: "10.0.0." + string(rune('1'+i)), Port: 80})
	}
	return map[snapshots.ServicePort][]snapshots.Endpoint{web: list}
}

// live is a side whose endpoints are joined when it is pushed.
func live(config string, n int) Side {
	s := sideOf(config)
	s.Endpoints = endpoints(n)
	return s
}

func recorded(t *testing.T, config string, n int) Side {
	t.Helper()
	text, err := snapshots.MarshalEndpoints(endpoints(n))
	if err != nil {
		t.Fatal(err)
	}
	return sideOf(config, snapshots.EndpointsFile, string(text))
}

// otherRecorded is a side with another endpoint than the first.
func otherRecorded(t *testing.T) Side {
	t.Helper()
	s := recorded(t, config, 1)
	s.Files[1].Content = []byte(strings.Replace(string(s.Files[1].Content), "10.0.0.1", "10.0.0.2", 1))
	return s
}

func secret(file, name string, use snapshots.Use) snapshots.CertificateRef {
	return snapshots.CertificateRef{File: file, Secret: snapshots.SecretName{Namespace: "shop", Name: name}, Use: use}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	withCertificate := sideOf(config)
	withCertificate.Certificates = []snapshots.CertificateRef{secret("certs/a.pem", "a", "")}
	withAuthority := sideOf(config)
	withAuthority.Certificates = []snapshots.CertificateRef{secret("certs/a.pem", "a", snapshots.UseCA)}
	checkVerdicts(t, map[string]verdictCase{
		"the same": {a: sideOf(config), b: sideOf(config), verdict: Nothing},
		"a line is replaced": {
			a: sideOf(config), b: sideOf(edited("roundrobin", "leastconn")), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 5, Text: "    balance leastconn"},
		},
		"a line comes": {
			a: sideOf(config), b: sideOf(edited("    balance", "    fullconn 5\n    balance")), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 5, Text: "    fullconn 5"},
		},
		"a line goes": {
			a: sideOf(config), b: sideOf(edited("    mode http\n", "")), verdict: Reload,
			decides: Line{Old: true, File: "haproxy.cfg", Line: 3, Text: "    mode http"},
		},
		"a weight alone": {
			a: sideOf(config), b: sideOf(edited("weight=90", "weight=80")), verdict: Runtime,
			decides: Line{File: "haproxy.cfg", Line: 6, Text: "    #hapsnap servers shop/web:http weight=80"},
		},
		"a weight, and a line after it": {
			a: sideOf(config), b: sideOf(edited("weight=90", "weight=80") + "backend x\n"), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 8, Text: "backend x"},
		},
		"an option of servers": {
			a: sideOf(config), b: sideOf(edited("weight=90", "weight=90 -- check")), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 6, Text: "    #hapsnap servers shop/web:http weight=90 -- check"},
		},
		"another Service": {
			a: sideOf(config), b: sideOf(edited("shop/next", "shop/new")), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 7, Text: "    #hapsnap servers shop/new:http weight=10"},
		},
		"an entry of a map": {
			a: sideOf(config, "maps/a.map", "x 1\n"), b: sideOf(config, "maps/a.map", "x 1\ny 2\n"), verdict: Reload,
			decides: Line{File: "maps/a.map", Line: 2, Text: "y 2"},
		},
		"a weight, and an entry of a map": {
			a: sideOf(config, "maps/a.map", "x 1\n"), b: sideOf(edited("weight=90", "weight=80"), "maps/a.map", "x 2\n"), verdict: Reload,
			decides: Line{File: "maps/a.map", Line: 1, Text: "x 2"},
		},
		"a weight of a static algorithm": {
			a: sideOf(edited("roundrobin", "source")), b: sideOf(strings.Replace(edited("roundrobin", "source"), "weight=90", "weight=80", 1)), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 6, Text: "    #hapsnap servers shop/web:http weight=80"},
		},
		"an entry of a map that is looked up by trees": {
			a: sideOf(mapped("str"), "maps/a.map", "x 1\n"), b: sideOf(mapped("str"), "maps/a.map", "x 1\ny 2\n"), verdict: Runtime,
			decides: Line{File: "maps/a.map", Line: 2, Text: "y 2"},
		},
		"an entry of a map that is looked up in order": {
			a: sideOf(mapped("reg"), "maps/a.map", "x 1\n"), b: sideOf(mapped("reg"), "maps/a.map", "x 1\ny 2\n"), verdict: Reload,
			decides: Line{File: "maps/a.map", Line: 2, Text: "y 2"},
		},
		"an entry, and a line": {
			a: sideOf(mapped("str"), "maps/a.map", "x 1\n"), b: sideOf(mapped("str")+"backend x\n", "maps/a.map", "x 2\n"), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: 10, Text: "backend x"},
		},
		"an entry that is there twice": {
			a: sideOf(mapped("str"), "maps/a.map", "x 1\n"), b: sideOf(mapped("str"), "maps/a.map", "x 1\nx 2\n"), verdict: Reload,
			decides: Line{File: "maps/a.map", Line: 2, Text: "x 2"},
		},
		"a file goes": {
			a: sideOf(config, "files/a", "x\n"), b: sideOf(config), verdict: Reload,
			decides: Line{Old: true, File: "files/a", Line: 1, Text: "x"},
		},
		"an empty file comes": {a: sideOf(config), b: sideOf(config, "files/a", ""), verdict: Reload, why: whyFile},
		"a certificate comes": {
			a: sideOf(config), b: withCertificate, verdict: Reload,
			decides: Line{File: CertificatesFile, Line: 1, Text: "certs/a.pem: certificate of Secret shop/a"},
		},
		"a certificate becomes authorities": {
			a: withCertificate, b: withAuthority, verdict: Reload,
			decides: Line{File: CertificatesFile, Line: 1, Text: "certs/a.pem: certificate authorities of Secret shop/a"},
		},
	})
}

// An empty line does not decide if other lines differ too.
func TestBlankLines(t *testing.T) {
	t.Parallel()
	checkVerdicts(t, map[string]verdictCase{
		"a section comes after a blank line": {
			a: sideOf(config), b: sideOf(config + "\n  \nbackend new\n"), verdict: Reload,
			decides: Line{File: "haproxy.cfg", Line: strings.Count(config, "\n") + 3, Text: "backend new"},
		},
	})
}

// Compare compares the version of a sealed certificate, and who can open it, since age makes other bytes each
// time.
func TestVerdictsOnVersions(t *testing.T) {
	t.Parallel()
	sealed := func(version, recipient, ciphertext string) Side {
		s := sideOf(config, "certs/a.pem.age", ciphertext)
		ref := secret("certs/a.pem", "a", "")
		ref.Mode, ref.Version = snapshots.ModeSealed, version
		s.Certificates, s.Recipients = []snapshots.CertificateRef{ref}, []string{recipient}
		return s
	}
	reference := sideOf(config)
	reference.Certificates = []snapshots.CertificateRef{secret("certs/a.pem", "a", "")}
	checkVerdicts(t, map[string]verdictCase{
		"sealed anew": {a: sealed("11", "age1x", "one"), b: sealed("11", "age1x", "two"), verdict: Nothing},
		"renewed": {
			a: sealed("11", "age1x", "one"), b: sealed("22", "age1x", "two"), verdict: Reload,
			decides: Line{File: CertificatesFile, Line: 1, Text: "certs/a.pem: certificate of Secret shop/a, sealed, version 22"},
		},
		"sealed to another": {
			a: sealed("11", "age1x", "one"), b: sealed("11", "age1y", "two"), verdict: Reload,
			decides: Line{File: CertificatesFile, Line: 2, Text: "sealed to age1y"},
		},
		"no longer sealed": {
			a: sealed("", "age1x", "one"), b: reference, verdict: Reload,
			decides: Line{File: CertificatesFile, Line: 1, Text: "certs/a.pem: certificate of Secret shop/a"},
		},
	})
}

func TestVerdictsOnEndpoints(t *testing.T) {
	t.Parallel()
	checkVerdicts(t, map[string]verdictCase{
		"the same endpoints": {a: live(config, 2), b: live(config, 2), verdict: Nothing},
		"endpoints of one":   {a: live(config, 2), b: sideOf(config), verdict: Nothing},
		"an endpoint more": {
			a: live(config, 2), b: live(config, 3), verdict: Runtime,
			decides: Line{File: "endpoints.yaml", Line: 9, Text: "  - address: 10.0.0.3"},
		},
		"an endpoint less": {
			a: live(config, 3), b: live(config, 2), verdict: Runtime,
			decides: Line{Old: true, File: "endpoints.yaml", Line: 9, Text: "  - address: 10.0.0.3"},
		},
		"endpoints outgrow the slots": {
			a: live(config, 2), b: live(config, 5), verdict: Reload, why: whyGrow,
			decides: Line{File: "haproxy.cfg", Line: 6, Text: "    #hapsnap servers shop/web:http weight=90"},
		},
		"slots for all of them": {
			a: live(edited("weight=90", "weight=90 slots=5"), 2), b: live(edited("weight=90", "weight=90 slots=5"), 5), verdict: Runtime,
			decides: Line{File: "endpoints.yaml", Line: 9, Text: "  - address: 10.0.0.3"},
		},
		"recorded endpoints": {
			a: recorded(t, config, 2), b: recorded(t, config, 3), verdict: Reload, why: whySlots,
			decides: Line{File: "endpoints.yaml", Line: 9, Text: "  - address: 10.0.0.3"},
		},
		"recorded endpoints, as many as before": {
			a: recorded(t, config, 1), b: otherRecorded(t), verdict: Runtime,
			decides: Line{File: "endpoints.yaml", Line: 5, Text: "  - address: 10.0.0.2"},
		},
		"recorded endpoints outgrow the slots": {
			a: recorded(t, config, 2), b: recorded(t, config, 5), verdict: Reload, why: whyGrow,
			decides: Line{File: "haproxy.cfg", Line: 6, Text: "    #hapsnap servers shop/web:http weight=90"},
		},
		"recorded and live endpoints": {
			a: recorded(t, config, 2), b: live(config, 3), verdict: Reload, why: whySlots,
			decides: Line{Old: true, File: "endpoints.yaml", Line: 1, Text: "apiVersion: hapsnap.dev/v1alpha1"},
		},
	})
}

type verdictCase struct {
	a, b    Side
	verdict Verdict
	decides Line
	why     string
}

func checkVerdicts(t *testing.T, cases map[string]verdictCase) {
	t.Helper()
	for name, c := range cases {
		got, err := Compare(c.a, c.b)
		if err != nil || got.Verdict != c.verdict || got.Decides != c.decides || got.Why != c.why {
			t.Errorf("%s: %v, %s, %+v, %q", name, err, got.Verdict, got.Decides, got.Why)
		}
		if (got.Verdict == Nothing) != (len(got.Files) == 0) {
			t.Errorf("%s: %s with %d files", name, got.Verdict, len(got.Files))
		}
	}
}

func TestUnifiedDiffs(t *testing.T) {
	t.Parallel()
	a := live(config, 1)
	a.Name, a.Files = "old", append(a.Files, snapshots.File{Path: "files/gone", Content: []byte("x\n")})
	b := live(edited("roundrobin", "leastconn"), 0)
	b.Name, b.Files = "new", append(b.Files, snapshots.File{Path: "maps/new.map", Content: []byte("y 1\n")})
	d, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{Path: "endpoints.yaml", Live: true, Added: 1, Removed: 3},
		{Path: "files/gone", Removed: 1, Diff: "--- a/files/gone\told\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"},
		{Path: "haproxy.cfg", Added: 1, Removed: 1, Diff: "--- a/haproxy.cfg\told\n+++ b/haproxy.cfg\tnew\n@@ -2,6 +2,6 @@\n" +
			" defaults main\n     mode http\n backend shop_web_http from main\n-    balance roundrobin\n+    balance leastconn\n" +
			"     #hapsnap servers shop/web:http weight=90\n     #hapsnap servers shop/next:http weight=10\n"},
		{Path: "maps/new.map", Added: 1, Diff: "--- /dev/null\n+++ b/maps/new.map\tnew\n@@ -0,0 +1,1 @@\n+y 1\n"},
	}
	for i := range d.Files {
		if d.Files[i].Live {
			d.Files[i].Diff = ""
		}
	}
	if diff := cmp.Diff(want, d.Files); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
