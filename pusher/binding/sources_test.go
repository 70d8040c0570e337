package binding

import (
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A new Service in a namespace that may not be read would have no servers.
func TestNewlyUnread(t *testing.T) {
	t.Parallel()
	web, api := snapshots.ServicePort{Namespace: "team2", Service: "web", Port: "http"}, snapshots.ServicePort{Namespace: "team2", Service: "api", Port: "http"}
	const text = "may not list EndpointSlices in team2"
	for name, test := range map[string]struct {
		readable, known, recorded bool
		services                  []snapshots.ServicePort
		want                      []string
	}{
		"none is new":                        {services: []snapshots.ServicePort{web}},
		"one is new":                         {services: []snapshots.ServicePort{web, api}, want: []string{text + ", where Service api is new"}},
		"endpoints of the new one are known": {services: []snapshots.ServicePort{web, api}, known: true},
		"its endpoints are recorded":         {services: []snapshots.ServicePort{web, api}, recorded: true},
		"the namespace may be read":          {services: []snapshots.ServicePort{web, api}, readable: true},
	} {
		prepare := func(services ...snapshots.ServicePort) Prepared {
			p := Prepared{Recorded: test.recorded, Lacks: []string{text}, ofConfig: ofConfig{byService: map[snapshots.ServicePort][]int{}}}
			for n, s := range services {
				p.byService[s], p.wants.Namespaces = []int{n}, []string{s.Namespace}
			}
			return p
		}
		endpoints := map[snapshots.ServicePort][]snapshots.Endpoint{}
		if test.known {
			endpoints[api] = []snapshots.Endpoint{{Address: "192.0.2.1", Port: 80}}
		}
		unread := func(namespace string) bool { return namespace == "team2" && !test.readable }
		if got := newlyUnread(prepare(test.services...), prepare(web), unread, endpoints); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A snapshot with recorded endpoints still needs a source if it uses Secrets. Without one, its hosts would be
// served with the fallback certificate.
func TestNeedsSource(t *testing.T) {
	t.Parallel()
	const plain = "frontend web\n    bind :80\nbackend b\n"
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	for name, test := range map[string]struct {
		config   string
		recorded bool
		refs     []snapshots.CertificateRef
		want     bool
	}{
		"nothing":                      {config: plain},
		"the fallback certificate":     {config: plain, refs: []snapshots.CertificateRef{{File: "certs/fallback.pem"}}},
		"live endpoints":               {config: plain + "    #hapsnap servers shop/web:http\n", want: true},
		"recorded endpoints":           {config: plain + "    #hapsnap servers shop/web:http\n", recorded: true},
		"a certificate":                {config: plain, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret}}, want: true},
		"recorded, and a certificate":  {config: plain, recorded: true, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret}}, want: true},
		"a certificate that is sealed": {config: plain, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret, Mode: snapshots.ModeSealed, Version: "x"}}},
		"users":                        {config: plain + "userlist u\n    #hapsnap users shop/basic\n", want: true},
	} {
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(test.config)}}
		if test.recorded {
			files = append(files, snapshots.File{Path: snapshots.EndpointsFile, Content: []byte("{}")})
		}
		if got := NeedsSource(snapshots.Draft{Files: files, Certificates: test.refs}.Number(1, snapshots.ID{})); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
