package snapshots

import (
	"errors"
	"strings"
	"testing"
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
