package routing

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestCertificateFileFitsAnInstance(t *testing.T) {
	long := strings.Repeat("a", 250)
	files := map[string]snapshots.SecretName{}
	for _, secret := range []snapshots.SecretName{
		{Namespace: "shop", Name: "web-tls"},
		{Namespace: "shop", Name: "web.tls"},
		{Namespace: "shop", Name: long + "b"},
		{Namespace: "shop", Name: long + "c"},
	} {
		file := CertificateFile(secret)
		if other, taken := files[file]; taken {
			t.Errorf("%s and %s share the file %s", other, secret, file)
		}
		files[file] = secret
		draft := snapshots.Draft{Certificates: []snapshots.CertificateRef{{File: file, Secret: secret}}}
		if err := draft.Check(); err != nil {
			t.Errorf("Secret %s: %v", secret, err)
		}
	}
}
