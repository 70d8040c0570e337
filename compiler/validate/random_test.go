package validate_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/snapshots"
)

// manyReaders is a haproxy.cfg that reads maps and lists of patterns with each kind of match, in all places that may name one.
const manyReaders = `global
defaults main
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
defaults other
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
    default-server sni req.hdr(host),map_reg(maps/own.map) ssl verify none
frontend f from main
    bind unix@f.sock
    bind unix@g.sock ssl crt-list files/https.crtlist
    acl inside src -f maps/networks.map
    acl reg path_reg -f maps/patterns.map
    acl num req.hdr_cnt -m int -f maps/ranges.map
    acl sub path_sub -i -f maps/words.map
    acl length req.hdr(x) -m len -f maps/ranges.map
    acl bytes req.hdr(x) -m bin -f maps/bytes.map
    http-request set-var(txn.a) req.hdr(host),map_str(maps/hosts.map)
    http-request set-var(txn.b) req.hdr(host),map_dom(maps/hosts.map)
    http-request set-var(txn.c) req.hdr(host),map_beg(maps/hosts.map)
    http-request set-var(txn.n) req.hdr(host),map_str_int(maps/numbers.map)
    http-request set-var(txn.i) req.hdr(host),map_str_ip(maps/ips.map)
    http-request set-var(txn.k) req.hdr_cnt,map_int(maps/keys.map)
    http-request set-var(txn.m) path,map_regm(maps/captures.map)
    http-request deny if reg or num or sub or length or bytes
    use_backend %[path,map_reg(maps/expressions.map)] if inside
backend a from main
    http-request set-header X %[src,map_ip(maps/addresses.map)]
    #hapsnap servers shop/a:http --
backend b from main
    http-request set-header X %[src,map_ip(maps/addresses.map)]
    #hapsnap servers shop/b:http --
backend c from other
    #hapsnap servers shop/c:http --
backend d from other
    #hapsnap servers shop/d:http --
backend own from main
    http-request set-header X %[path,map_reg(maps/own.map)]
    #hapsnap servers shop/own:http --
`

// strangeLines are what a tenant may want to have in a map.
var strangeLines = []string{
	"192.0.2.0/24", "2001:db8::/32 x", "192.0.2.0/240", "a.example a", "b.example 1", "c.example many", "^/a a", "( own", "[ b", `^(?:x)\1 y`,
	"", "   ", "# comment", "#", "\x00", "a\x00b c", "a\tb", "\ta b", "a", "7 x", "7:9 x", "9:7 x", "-1 2", "99999999999999999999 1", "1.2.3.4 5.6.7.8", "1.2.3.4/33 x",
	"::1 ::2", "x 0x10", `"a b" c`, "'a", `a\ b c`, "\xff\xfe z", "0a0b z", "0a0 z", "*", "** x", "a{99999} x", `(?P<n>a) \1`, "gt 5 x", "-i x", "-f /etc/passwd",
	"%[src] y", "a ${HOME}", "\ra b", "a b\r", strings.Repeat("k", 70000) + " v", "k " + strings.Repeat("v", 70000), strings.Repeat("(", 300) + " v",
}

// readMaps are the maps of manyReaders.
var readMaps = []string{"addresses", "bytes", "captures", "expressions", "hosts", "ips", "keys", "networks", "numbers", "own", "patterns", "ranges", "words"}

// changing is an input that changes.
type changing struct {
	r            *rand.Rand
	config       string
	files, maps  map[string]string
	certificates validate.KeyType
}

// change changes entries of maps, or seldom something else.
func (c *changing) change() {
	switch c.r.IntN(24) {
	case 0:
		c.files["503.http"] = fmt.Sprintf("HTTP/1.0 503 x%d\r\n\r\n", c.r.IntN(3))
	case 1:
		c.config = strings.Replace(manyReaders, "timeout client 1s", fmt.Sprintf("timeout client %ds", 1+c.r.IntN(2)), 1)
	case 2:
		c.certificates = []validate.KeyType{validate.RSA, validate.ECDSA, validate.Ed25519}[c.r.IntN(3)]
	case 3:
		c.files["https.crtlist"] = []string{"certs/web.pem [alpn h2] a.example\n", "certs/web.pem b.example\n", "certs/web.pem [bogus] b.example\n"}[c.r.IntN(3)]
	default:
		name := readMaps[c.r.IntN(len(readMaps))]
		if c.maps[name] += strangeLines[c.r.IntN(len(strangeLines))] + []string{"\n", "\n", ""}[c.r.IntN(3)]; c.r.IntN(3) == 0 {
			c.maps[name] = c.maps[name][:c.r.IntN(len(c.maps[name])+1)]
		}
	}
}

func (c *changing) input() validate.Input {
	secret := snapshots.SecretName{Namespace: "shop", Name: "web"}
	in := validate.Input{Keys: map[snapshots.SecretName]validate.KeyType{secret: c.certificates}}
	for _, name := range []string{"503.http", "https.crtlist"} {
		in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: "files/" + name, Content: []byte(c.files[name])})
	}
	in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: snapshots.ConfigFile, Content: []byte(c.config)})
	for _, name := range readMaps {
		in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: "maps/" + name + ".map", Content: []byte(c.maps[name])})
	}
	in.Artifact.Certificates = []snapshots.CertificateRef{{File: "certs/web.pem", Secret: secret, Use: snapshots.UseCertificate}}
	return in
}

// Whatever is in maps, and whatever else changes between, the verdict is that of a checker that has seen nothing before.
func TestVerdictsOfStrangeMaps(t *testing.T) {
	t.Parallel()
	keeping := find(t)
	c := &changing{
		r: rand.New(rand.NewPCG(3, 8)), config: manyReaders, certificates: validate.ECDSA, maps: map[string]string{},
		files: map[string]string{"503.http": "HTTP/1.0 503 x\r\n\r\n", "https.crtlist": "certs/web.pem b.example\n"},
	}
	sound, steps := 0, 80
	if race.Enabled {
		steps = 10
	}
	for step := range steps {
		c.change()
		in := c.input()
		want, got := said(t, find(t), in), said(t, keeping, in)
		if want != got {
			t.Fatalf("step %d: it says\n%.2000s\nand not\n%.2000s", step, got, want)
		}
		if want == "" {
			sound++
			continue
		}
		clear(c.maps)
		c.files["https.crtlist"] = "certs/web.pem b.example\n"
	}
	t.Logf("%d of %d are sound, and were bound %d times in short", sound, steps, validate.Shortened(keeping))
	if !race.Enabled && (sound < steps/3 || sound > steps*2/3 || validate.Shortened(keeping) == 0) {
		t.Error("the test is worth little")
	}
}
