package gateway_test

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// If a certificate of a Gateway has expired, there is a warning on its Secret, as for Ingresses. That holds for
// certificates for clients and for servers, and also for certificates that clients refuse.
func TestCertificatesThatHaveExpired(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	secret := func(name string, usage ...x509.ExtKeyUsage) string {
		certificate, key := pemtest.PEMOf(t, pemtest.NewAuthority(t).Sign(t, "a.example", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter, c.ExtKeyUsage = end.AddDate(0, -3, 0), end, usage
		}))
		encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: %s}\ndata: {tls.crt: %s, tls.key: %s}\n", name, encoded(certificate), encoded(key))
	}
	in := gathered(t, class+secret("ours", x509.ExtKeyUsageServerAuth)+secret("shown", x509.ExtKeyUsageClientAuth)+secret("wrong", x509.ExtKeyUsageClientAuth)+
		object("Gateway", "one", "{gatewayClassName: hapsnap, tls: {backend: {clientCertificateRef: {name: shown}}}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: ours}]}}, {name: b, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: ours}, {name: wrong}]}}]}"))
	said := func(now time.Time, name, what string) int {
		cfg := usual
		cfg.Now = now
		_, found, _ := gateway.Translate(in, cfg)
		return len(slices.DeleteFunc(found, func(d diag.Diagnostic) bool {
			return d.Severity != diag.Warning || d.Object.Kind != "Secret" || d.Object.Name != name || !strings.Contains(d.Message, what)
		}))
	}
	for _, c := range []struct {
		now        time.Time
		name, what string
		want       int
	}{
		{end.Add(-time.Hour), "ours", "", 0}, {end.Add(time.Hour), "ours", "the certificate expired on 2026-05-01", 1},
		{end.Add(-time.Hour), "shown", "", 0}, {end.Add(time.Hour), "shown", "the certificate expired on 2026-05-01", 1},
		{end.Add(-time.Hour), "wrong", "is not for servers", 1}, {time.Time{}, "ours", "", 0},
	} {
		if got := said(c.now, c.name, c.what); got != c.want {
			t.Errorf("%s at %s: %q is said %d times, want %d", c.name, c.now, c.what, got, c.want)
		}
	}
}
