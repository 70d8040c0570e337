package access

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// CertificateWarnings returns what is to be said of a certificate that can be used, at a time, or zero for none: that it
// has expired, until when something else happens, and why clients refuse it though HAProxy serves it.
func CertificateWarnings(secret inputs.Object[corev1.Secret], observed snapshots.ObservedCertificate, now time.Time, refused []string, until string) []diag.Diagnostic {
	var out []diag.Diagnostic
	warn := func(message, hint string) {
		out = append(out, diag.Diagnostic{Severity: diag.Warning, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint})
	}
	if !now.IsZero() && now.After(observed.NotAfter) {
		warn("the certificate expired on "+observed.NotAfter.Format("2006-01-02"), "renew it; until then "+until)
	}
	for _, fault := range refused {
		warn(fmt.Sprintf("the certificate for %s %s", someNames(observed.Names), fault), "it is served, and clients may refuse it; put one for a server there")
	}
	return out
}

// someNames lists the first of the names that a certificate is for.
func someNames(names []string) string {
	const most = 3
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
