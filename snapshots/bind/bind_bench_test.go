package bind

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// large returns a snapshot of n backends with three endpoints each, and n/10 certificates.
func large(tb testing.TB, n int) (snapshots.Snapshot, Inputs) {
	tb.Helper()
	var config, list bytes.Buffer
	config.WriteString("global\n    maxconn 1000\ndefaults\n    mode http\nfrontend web\n    bind :8443 ssl crt-list files/https.crtlist\n    use_backend %[path,map(maps/host.map)]\n")
	b := Inputs{Layout: testLayout, Live: Live{Certificates: map[snapshots.SecretName][]byte{}, Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}}}
	var d snapshots.Draft
	certificate := pemtest.SelfSigned(tb, "a.example", pemtest.ECKey())
	for i := range n {
		fmt.Fprintf(&config, "backend shop_web-%d_http\n    balance roundrobin\n    option httpchk\n    http-request set-header X-Backend web-%d\n    default-server check inter 5s\n    #hapsnap servers shop/web-%d:http -- maxconn 100\n", i, i, i)
		service := snapshots.ServicePort{Namespace: "shop", Service: fmt.Sprintf("web-%d", i), Port: "http"}
		for j := range 3 {
			b.Live.Endpoints[service] = append(b.Live.Endpoints[service], snapshots.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1), Port: 8080, Draining: false})
		}
		if i%10 == 0 {
			secret := snapshots.SecretName{Namespace: "shop", Name: fmt.Sprintf("tls-%d", i)}
			file := fmt.Sprintf("certs/shop_tls-%d.pem", i)
			fmt.Fprintf(&list, "%s web-%d.example\n", file, i)
			b.Live.Certificates[secret] = certificate
			d.Certificates = append(d.Certificates, snapshots.CertificateRef{File: file, Secret: secret})
		}
	}
	d.Files = []snapshots.File{{Path: snapshots.ConfigFile, Content: config.Bytes()}, {Path: "files/https.crtlist", Content: list.Bytes()}, {Path: "maps/host.map", Content: []byte("a b\n")}}
	directives := must(Directives(config.Bytes()))(tb)
	b.Slots, _ = AssignSlots(nil, directives, b.Live.Endpoints, noon, time.Minute)
	return d.Number(1, snapshots.ID{}), b
}

func BenchmarkBind10000(b *testing.B) {
	snapshot, binding := large(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Bind(snapshot, binding); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOneEndpoint measures the cost of a changed endpoint before it is sent: slots and servers of one
// backend among 10,000.
func BenchmarkOneEndpoint(b *testing.B) {
	snapshot, binding := large(b, 10_000)
	directives := must(Directives(snapshot.Config()))(b)[5000:5001]
	b.ReportAllocs()
	for b.Loop() {
		key := directives[0].Key()
		group := Slots{key: binding.Slots[key]}
		next, _ := AssignSlots(group, directives, binding.Live.Endpoints, noon, time.Minute)
		if _, err := Servers(directives, next); err != nil {
			b.Fatal(err)
		}
	}
}
