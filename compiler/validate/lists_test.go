package validate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// HAProxy reads one certificate of each kind, however many Secrets there are. In a review it reads few lines of
// lists, and before publishing one for each Secret.
func TestHAProxyReadsFewCertificates(t *testing.T) {
	t.Parallel()
	check, asked := overheard(t, "general/https*.crtlist")
	const secrets = 100
	in := withCertificates(t, upTo(secrets)...)
	in.Keys[snapshots.SecretName{Namespace: "shop", Name: "tls-007"}] = validate.RSA
	for onePerText, most := range map[bool]int{false: secrets + 10, true: 10} {
		in.OnePerText = onePerText
		accepted(t, check, in)
		text := asked()
		files, lines := map[string]bool{}, 0
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 0 {
				files[words[0]] = true
				lines++
			}
		}
		if len(files) != 2 || lines > most || !onePerText && lines < secrets {
			t.Errorf("one of each text: %t: %d lines name %d certificates:\n%s", onePerText, lines, len(files), text)
		}
	}
}

// listLines are lines of a crt-list. HAProxy refuses some, warns about some, and accepts others. FILE is a
// certificate.
var listLines = []string{
	"FILE [verify maybe] a.example", "FILE [verify required] a.example", "FILE [nothing] a.example", "FILE [ssl-min-ver TLSv9] a.example", "FILE [alpn] a.example", "FILE [alpn h2] a.example",
	"FILE [alpn h2,http/1.1 ssl-min-ver TLSv1.2] a.example", "FILE [ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.0] a.example", "FILE [ca-file nothing.pem verify required] a.example",
	"FILE [ciphers NOTHING] a.example", "FILE [ciphersuites NOTHING] a.example", "FILE [curves nothing] a.example", "FILE [ecdhe nothing] a.example", "FILE [no-ca-names] a.example", "FILE [allow-0rtt] a.example",
	"FILE [] a.example", "FILE [alpn h2", "FILE alpn h2] a.example", "FILE [alpn h2]a.example", "FILE[alpn h2] a.example", "FILE [alpn h2] [alpn h2] a.example", "FILE  [alpn h2]  a.example",
	"FILE", "FILE !*", "FILE *", "FILE !", "FILE a*b.example", "FILE *.example !x.example", "FILE !x.example", "FILE a.example !a.example", "FILE a.example a.example", "FILE A.EXAMPLE", "FILE .example", "FILE -",
	"FILE \"a.example\"", "FILE 'a.example'", "FILE a\\ b", "FILE a.example # b.example", "FILE a.example#b", "FILE\ta.example", " FILE a.example", "FILE a.example ", "FILE a.example\r", "# FILE a.example", "", " ",
	"FILE a_b.example", "FILE a/b", "FILE a:b", "FILE $HOME", "FILE ${HOME}", "FILE münchen.example", "FILE " + strings.Repeat("a", 300), "FILE" + strings.Repeat(" a.example", 200),
	"certs/ca.pem a.example", "FILE certs/b.pem", "FILE [ocsp-update on] a.example", "FILE [ocsp-update maybe] a.example", "FILE [verify none ocsp-update on] a.example",
}

// wholeLists are lists about which HAProxy complains because of two lines together.
var wholeLists = []string{
	"certs/shop_0.pem a.example\ncerts/shop_1.pem [ocsp-update on] b.example\n",
	"certs/shop_0.pem a.example\ncerts/shop_0.pem [ocsp-update on] b.example\n",
	"certs/shop_0.pem [ocsp-update off] a.example\ncerts/shop_1.pem [ocsp-update on] b.example\ncerts/shop_3.pem [ocsp-update off] c.example\ncerts/shop_3.pem [ocsp-update on] d.example\n",
	"certs/shop_0.pem z.example\ncerts/shop_1.pem a.example\ncerts/shop_1.pem [ocsp-update on] b.example\n",
	"certs/shop_0.pem [ocsp-update on] a.example\ncerts/shop_1.pem b.example\n",
	"certs/shop_0.pem a.example\n# certs/shop_1.pem\ncerts/shop_1.pem b.example\n",
	"certs/shop_0.pem a.example\ncerts/shop_1.pem a.example\ncerts/shop_2.pem a.example\ncerts/shop_0.pem a.example\n",
}

// atList matches the place of a fault in a crt-list.
var atList = regexp.MustCompile(`list[^/\s:]*\.crtlist:(\d+)\]|line (\d+) [^\n]*file '[^']*list[^/']*\.crtlist'|crt-list '[^']*list[^/']*\.crtlist' line (\d+)`)

// HAProxy's verdict on lists whose lines share a few certificates equals that on lists with one for each
// Secret: it accepts the same ones, and finds the same line.
func TestListsOfSharedCertificates(t *testing.T) {
	t.Parallel()
	check := find(t)
	kinds := []validate.KeyType{validate.ECDSA, validate.ECDSA, validate.RSA, validate.ECDSA, validate.Ed25519, validate.ECDSA}
	keys := map[snapshots.SecretName]validate.KeyType{}
	refs := []snapshots.CertificateRef{{File: "certs/ca.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "ca"}, Use: snapshots.UseCA}}
	for i, kind := range kinds {
		ref := snapshots.CertificateRef{File: fmt.Sprintf("certs/shop_%d.pem", i), Secret: snapshots.SecretName{Namespace: "shop", Name: fmt.Sprint("tls-", i)}}
		refs = append(refs, ref)
		keys[ref.Secret] = kind
	}
	type checked struct{ list, more string } // more is in haproxy.cfg
	var lists []checked
	for _, list := range wholeLists {
		lists = append(lists, checked{list, ""})
		for i := range 2 { // messages about a certificate outside of the list count too
			lists = append(lists, checked{list, fmt.Sprintf("frontend g from main\n    bind unix@g.sock ssl\n    ssl-f-use crt certs/shop_%d.pem ocsp-update on\n", i)})
		}
	}
	for i, mistake := range listLines {
		random := rand.New(rand.NewPCG(2, uint64(i)))
		var list strings.Builder
		at := random.IntN(12)
		for n := range 12 {
			file := fmt.Sprintf("certs/shop_%d.pem", random.IntN(len(kinds)))
			line := file + []string{"", " [alpn h2]", " [verify none alpn h2]"}[random.IntN(3)] + fmt.Sprintf(" h%d.example *.w%d.example", n, n)
			if n == at || random.IntN(4) == 0 {
				line = strings.ReplaceAll(mistake, "FILE", file)
			}
			list.WriteString(line + "\n")
		}
		lists = append(lists, checked{list.String(), ""})
	}
	refused := 0
	for _, test := range lists {
		list := test.list
		config := "global\ndefaults main\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nfrontend f from main\n    bind unix@f.sock ssl crt-list files/list.crtlist\n" + test.more
		artifact := render.Artifact{Certificates: refs, Files: []snapshots.File{{Path: "files/list.crtlist", Content: []byte(list)}, {Path: snapshots.ConfigFile, Content: []byte(config)}}}
		want, bound := apart(t, check, keys, artifact)
		if !bound {
			continue // we refuse it first
		}
		for _, short := range []bool{false, true} {
			v, err := check.Check(t.Context(), validate.Input{Artifact: artifact, Keys: keys, OnePerText: short})
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, f := range v.Faults {
				if f.File == "files/list.crtlist" {
					got = append(got, f.Line)
				}
			}
			if slices.Sort(got); want.refused != (len(v.Faults) > 0) || want.refused && !slices.Equal(slices.Compact(got), want.lines) {
				t.Errorf("one of each: %t: refused on the lines %v, %v; want %t, on %v of\n%s", short, got, v.Faults, want.refused, want.lines, list)
			}
		}
		if want.refused {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("of %d lists, HAProxy refuses %d", len(listLines), refused)
	}
}

type saidOfList struct {
	refused bool
	lines   []int
}

// apart checks an artifact with a certificate for each Secret.
func apart(t *testing.T, c *validate.Checker, keys map[snapshots.SecretName]validate.KeyType, a render.Artifact) (said saidOfList, bound bool) {
	t.Helper()
	draft := snapshots.Draft{Files: a.Files, Certificates: a.Certificates}
	s := draft.Number(1, snapshots.ID{})
	needs, err := bind.Needs(s.Config(), draft.Certificates)
	if err != nil {
		t.Fatal(err)
	}
	live, err := c.StandIns(keys, needs)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	layout := validate.LayoutIn(dir)
	b, err := bind.Bind(s, bind.Inputs{Live: live, Layout: layout})
	if err != nil {
		return said, false
	}
	write := func(path string, text []byte) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range b.Files {
		write(f.Path, f.Content)
	}
	write(filepath.Join(dir, snapshots.ConfigFile), b.Config)
	cmd := exec.CommandContext(t.Context(), c.Path, "-c", "-f", snapshots.ConfigFile)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		t.Fatal(err)
	}
	said.refused = err != nil
	for _, m := range atList.FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.Atoi(m[1] + m[2] + m[3])
		said.lines = append(said.lines, n)
	}
	slices.Sort(said.lines)
	said.lines = slices.Compact(said.lines)
	return said, true
}
