package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/snapshots"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A snapshot whose endpoints are recorded needs a source all the same if it takes anything of
// Secrets: without one its hosts would be served with the fallback certificate.
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
		if got := binding.NeedsSource(snapshots.Draft{Files: files, Certificates: test.refs}.Seal(1, snapshots.ID{})); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
