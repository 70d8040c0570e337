package routing

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// An expression that can match a normalized path is accepted. Others are reported.
func TestUnmatchable(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"/admin": "", "/a%20b": "", "/a;x": "", "/[^/]+": "", "/(a|b)/.*": "", "/caf%C3%A9": "", "/a%2Fb": "", `/a\.b`: "", "/+a": "", "/[|a]": "", "/x{2}": "", `/\.well-known`: "", "/(|a)": "", `/[\x00-\x7f]`: "",
		`/a\|b`: `'|'`, "/a[|]b": `'|'`, `/a\^b`: `'^'`, "/(a|b<c)": `'<'`, "/%61dmin": `"%61"`, "/(x|%2E)": `"%2E"`, "/a//b": `"//"`, `/\./a`: `"/./"`, `/a/\.\./b`: `"/../"`, "/[{}]+": `"[\\{\\}]"`,
	} {
		if got := Unmatchable(expression); got != want {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

// These are the bytes that a path may have: a request may carry them unencoded, and they have no meaning in a
// map.
func TestPathBytes(t *testing.T) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + "-._~" + "!$&'()*+,;=" + ":@" + "/%" + "<>[]^`{|}"
	for c := range 256 {
		path := "/a" + string([]byte{byte(c)}) + "b"
		message, _ := CheckUsable(path)
		if want := strings.IndexByte(allowed, byte(c)) >= 0; (message == "") != want {
			t.Errorf("%q: allowed is %v, want %v (%s)", path, message == "", want, message)
		}
	}
}

func TestCheckUsableLength(t *testing.T) {
	for n, want := range map[int]bool{MaxPath: true, MaxPath + 1: false} {
		if message, _ := CheckUsable("/" + strings.Repeat("a", n-1)); (message == "") != want {
			t.Errorf("a path of %d bytes: usable is %v (%s)", n, message == "", message)
		}
	}
}

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
