package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// side is one side of a generated pair: a backend with everything that belongs to it.
type side struct {
	balance, extra string
	services       []joined
	certificate    []byte // nil for none
	lookup         string // how its map is looked up: str, beg or reg
	entries        []bind.MapEntry
}

// mapFile is the side's map.
func (s side) mapFile() string {
	out := "# a map\n"
	for _, e := range s.entries {
		out += e.Key + " " + e.Value + "\n"
	}
	return out
}

// joined is a Service of a side.
type joined struct {
	name, options string
	slots, weight int
	endpoints     []snapshots.Endpoint
}

func (j joined) port() snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "n", Service: j.name}
}

// section is the side as a section of haproxy.cfg.
func (s side) section(name string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "backend %s\n    balance %s\n%s", name, s.balance, s.extra)
	fmt.Fprintf(&out, "    http-request set-var(txn.m) path,map_%s(maps/%s.map)\n", s.lookup, name)
	for _, j := range s.services {
		fmt.Fprintf(&out, "    #hapsnap servers %s weight=%d", j.port(), j.weight)
		if j.slots > 0 {
			fmt.Fprintf(&out, " slots=%d", j.slots)
		}
		fmt.Fprintln(&out, strings.TrimRight(" -- "+j.options, "- "))
	}
	return out.String()
}

// pair is two sides. It counts the changes from the first to the second that need a reload.
type pair struct {
	name  string
	a, b  side
	fixed int
}

// generate returns a random pair.
func generate(r *rand.Rand, n int, certificates func() []byte) pair {
	a := side{balance: pick(r, "roundrobin", "roundrobin", "static-rr", "leastconn", "source"), lookup: pick(r, "str", "beg", "str", "beg", "reg")}
	for k := range r.IntN(12) {
		a.entries = append(a.entries, bind.MapEntry{Key: fmt.Sprintf("/%d", k), Value: pick(r, "x", "y", "z")})
	}
	for i := range 1 + r.IntN(3) {
		a.services = append(a.services, joined{
			name: fmt.Sprintf("s%d-%d", n, i), options: pick(r, "", "maxconn 50", "backup"), slots: r.IntN(2) * r.IntN(6), weight: 1 + r.IntN(200),
			endpoints: endpointsBy(r, r.IntN(5)),
		})
	}
	if n%25 == 0 {
		a.certificate = certificates()
	}
	p := pair{name: fmt.Sprintf("c%d", n), a: a, b: a}
	p.b.services, p.b.entries = slices.Clone(a.services), slices.Clone(a.entries)
	for range r.IntN(4) {
		p.change(r, certificates)
	}
	return p
}

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

// endpointsBy returns n endpoints of which some drain.
func endpointsBy(r *rand.Rand, n int) []snapshots.Endpoint {
	all := map[snapshots.Endpoint]bool{}
	for range n {
		all[snapshots.Endpoint{Address: fmt.Sprintf("10.0.%d.%d", r.IntN(3), 1+r.IntN(200)), Port: 1 + r.IntN(9)}] = r.IntN(6) == 0
	}
	var out []snapshots.Endpoint
	for e, draining := range all {
		e.Draining = draining
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b snapshots.Endpoint) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}

// change changes the second side in a random way.
func (p *pair) change(r *rand.Rand, certificates func() []byte) {
	j := &p.b.services[r.IntN(len(p.b.services))]
	switch r.IntN(20) {
	case 0:
		j.options = pick(r, "maxconn 7", "send-proxy")
		p.fixed++
	case 1:
		p.b.extra += fmt.Sprintf("    fullconn %d\n", 100+r.IntN(1000))
		p.fixed++
	case 2:
		if p.b.certificate != nil {
			p.b.certificate = certificates()
		}
	case 12:
		j.weight = 1 + r.IntN(200)
	case 13:
		j.name += "b" // another Service with the same endpoints
	case 14, 15, 16:
		p.b.entries = append(p.b.entries, bind.MapEntry{Key: fmt.Sprintf("/n%d|%d", len(p.b.entries), r.IntN(1000)), Value: "new"})
	case 17, 18, 19:
		if n := len(p.b.entries); n > 0 {
			k := r.IntN(n)
			p.b.entries[k].Value += "2"
			p.b.entries = slices.Delete(p.b.entries, n/2, n/2+r.IntN(2))
		}
	case 3:
		j.endpoints = endpointsBy(r, r.IntN(5)) // new endpoints, all at once
	case 4, 5, 6:
		j.endpoints = append(slices.Clone(j.endpoints), endpointsBy(r, 1)...)
	default:
		if n := len(j.endpoints); n > 0 {
			j.endpoints = slices.Delete(slices.Clone(j.endpoints), r.IntN(n), n)
		}
	}
}

// world is a configuration of many sides, with their live data.
type world struct {
	draft     snapshots.Draft
	endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	secrets   map[snapshots.SecretName][]byte
}

const worldHead = `global
    maxconn 100

defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s

frontend web
    bind unix@%s ssl crt-list files/web.crtlist
`

// pack puts sides into one configuration, whose frontend listens on a socket.
func pack(socket string, sides map[string]side) world {
	w := world{endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}, secrets: map[snapshots.SecretName][]byte{}}
	var sections, list strings.Builder
	refs := []snapshots.CertificateRef{{File: "certs/fallback.pem"}}
	list.WriteString("certs/fallback.pem !*\n")
	var maps []snapshots.File
	for _, name := range names(sides) {
		s := sides[name]
		sections.WriteString(s.section(name))
		maps = append(maps, snapshots.File{Path: "maps/" + name + ".map", Content: []byte(s.mapFile())})
		for _, j := range s.services {
			w.endpoints[j.port()] = j.endpoints
		}
		if s.certificate != nil {
			secret := snapshots.SecretName{Namespace: "n", Name: name}
			w.secrets[secret] = s.certificate
			refs = append(refs, snapshots.CertificateRef{File: "certs/" + name + ".pem", Secret: secret})
			fmt.Fprintf(&list, "certs/%s.pem %s.example\n", name, name)
		}
	}
	w.draft = snapshots.Draft{Certificates: refs, Files: append(maps, []snapshots.File{
		{Path: snapshots.ConfigFile, Content: []byte(fmt.Sprintf(worldHead, socket) + sections.String())},
		{Path: "files/web.crtlist", Content: []byte(list.String())},
	}...)}
	return w
}

func names(sides map[string]side) []string { return slices.Sorted(maps.Keys(sides)) }

// bind binds the world as a revision. Its slots continue a table.
func (w world) bind(t *testing.T, revision uint64, fallback []byte, layout bind.Layout, table bind.Slots) (bind.Bound, bind.Slots) {
	t.Helper()
	s := w.draft.Number(revision, snapshots.ID{})
	directives, err := bind.Directives(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, int(revision), 0, time.UTC)
	slots, _ := bind.AssignSlots(table, directives, w.endpoints, at, time.Minute)
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{Certificates: w.secrets, Fallback: fallback}, Slots: slots, Layout: layout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return bound, slots
}

// makeCertificates returns a function that makes a new certificate at each call.
func makeCertificates(t *testing.T) func() []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	serial := int64(0)
	return func() []byte {
		serial++
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"x"},
			NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		}
		der, err := x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	}
}
