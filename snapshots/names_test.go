package snapshots

import (
	"errors"
	"strings"
	"testing"

	"github.com/haproxytech/client-native/v6/misc"
)

func TestDraftCheck(t *testing.T) {
	long := strings.Repeat("a", maxName)
	for path, ok := range map[string]bool{
		"haproxy.cfg": true, "endpoints.yaml": true,
		"maps/host.map": true, "maps/Host_1-x.map": true, "files/https.crtlist": true, "files/a.lua": true,
		"maps/host.txt": false, "maps/.map": false, "maps/host": false, "maps/host.": false, "maps/a.b.map": false,
		"maps/a/b.map": false, "maps/../a.map": false, "maps/a b.map": false, "maps/ä.map": false, "maps/": false,
		"files/a": false, "files/a.b.c": false, "certs/a.pem": false, "other.txt": false, "/etc/passwd": false,
		"": false, "maps/" + long + ".map": false,
	} {
		err := Draft{Files: []File{{path, nil}}}.Check()
		if (err == nil) != ok || (err != nil && !errors.Is(err, ErrBadName)) {
			t.Errorf("file %q: %v", path, err)
		}
	}
	for path, ok := range map[string]bool{
		"certs/shop_web-tls.pem": true, "certs/a.b.pem": false, "certs/a.crt": false, "maps/a.map": false, "certs/a": false, "a.pem": false,
	} {
		err := Draft{Certificates: []CertificateRef{{File: path}}}.Check()
		if (err == nil) != ok || (err != nil && !errors.Is(err, ErrBadName)) {
			t.Errorf("certificate %q: %v", path, err)
		}
	}
}

// The Dataplane API keeps the names that pass the check as they are.
func TestNamesSurviveTheDataplaneAPI(t *testing.T) {
	for _, name := range []string{"host.map", "Host_1-x.map", "https.crtlist", "shop_web-tls.pem"} {
		for _, kept := range []string{name, hashedName(name, []byte("x"))} {
			if got := misc.SanitizeFilename(kept); got != kept {
				t.Errorf("%s becomes %s", kept, got)
			}
		}
	}
	if got := hashedName("host.map", nil); got != "host-e3b0c442.map" {
		t.Errorf("an empty file is named %s", got)
	}
}
