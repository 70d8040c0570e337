package bind

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd/htpasswdtest"
)

func TestSecretWord(t *testing.T) {
	t.Parallel()
	key := SecretKey{snapshots.SecretName{Namespace: "shop", Name: "keys.v1"}, "Cookie_key-1.txt"}
	word := must(SecretWord(key))(t)
	if word != "hapsnap:secret/shop/keys.v1/Cookie_key-1.txt" {
		t.Errorf("the word is %s", word)
	}
	if got, ok, err := secretWordIn([]byte(word)); got != key || !ok || err != nil {
		t.Errorf("read as %v, %v, %v", got, ok, err)
	}
	for _, bad := range []SecretKey{{}, {snapshots.SecretName{Namespace: "shop", Name: "keys"}, ""}, {snapshots.SecretName{Namespace: "shop", Name: "a/b"}, "c"}, {snapshots.SecretName{Namespace: "", Name: "a"}, "c"}, {snapshots.SecretName{Namespace: "shop", Name: "a"}, "c d"}, {snapshots.SecretName{Namespace: "shop", Name: "a"}, "c\n"}} {
		if _, err := SecretWord(bad); err == nil {
			t.Errorf("%v has a word", bad)
		}
	}
}

func TestSecretValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data, value string
		err         error
	}{
		"plain":              {"s3cret", "s3cret", nil},
		"signs":              {`it's "x" #1 $HOME \n {y}`, `it's "x" #1 $HOME \n {y}`, nil},
		"a letter":           {"ü", "ü", nil},
		"line break":         {"s3cret\n", "s3cret", nil},
		"CRLF":               {"s3cret\r\n", "s3cret", nil},
		"two line breaks":    {"s3cret\n\n", "", ErrBadValue},
		"two lines":          {"s3\ncret", "", ErrBadValue},
		"NUL":                {"s3\x00cret", "", ErrBadValue},
		"line separator":     {"s3\u2028cret", "", ErrBadValue},
		"not UTF-8":          {"s3\xffcret", "", ErrBadValue},
		"nothing":            {"", "", ErrNoValue},
		"only a line break":  {"\n", "", ErrNoValue},
		"an option":          {"-f", "", ErrBadValue},
		"a format":           {"a%[src]", "", ErrBadValue},
		"a brace":            {"}", "", ErrBadValue},
		"as long as may be":  {strings.Repeat("a", 4096), strings.Repeat("a", 4096), nil},
		"longer than may be": {strings.Repeat("a", 4097), "", ErrBadValue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := SecretValue([]byte(c.data))
			if got != c.value || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestQuoteWord(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"s3cret": "s3cret", "a b": "'a b'", "it's": `'it'\''s'`, "''": `''\'''\'''`, "$x": "'$x'", "a/b": "'a/b'", "a#b": "'a#b'", `a\`: `'a\'`, "ü": "'ü'",
	} {
		if got := quoteWord(value); got != want || haproxycfg.CountWords([]byte(got+" x")) != 2 {
			t.Errorf("%q is written %s, want %s", value, got, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	config := `userlist u
    #hapsnap users shop/auth
userlist v
    #hapsnap users shop/auth
backend b # hapsnap:secret/not/needed/here
    dynamic-cookie-key hapsnap:secret/shop/keys/b
    # hapsnap:secret/nor/needed/here
    #hapsnap servers shop/web -- x hapsnap:secret/shop/keys/a
`
	name := func(s string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: s} }
	refs := []snapshots.CertificateRef{{File: "certs/fallback.pem"}, {File: "certs/a.pem", Secret: name("tls")}, {File: "certs/b.pem", Secret: name("tls")}, {File: "certs/ca.pem", Secret: name("tls"), Use: snapshots.UseCA}}
	got, err := Needs([]byte(config), refs)
	want := []Need{
		{Secret: name("tls")}, {Use: snapshots.UseCA, Secret: name("tls")}, {Use: snapshots.UseUsers, Secret: name("auth")},
		{Use: snapshots.UseValue, Secret: name("keys"), Key: "a"}, {Use: snapshots.UseValue, Secret: name("keys"), Key: "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, needs (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"hapsnap:secret/shop/keys", "hapsnap:secret/a/b/c/d", "xhapsnap:secret/a/b/c", "hapsnap:secret/a/b/c,x", `'hapsnap:secret/a/b/c'`, "str(hapsnap:secret/a/b/c)", "hapsnap:secret/a/b/c:hapsnap:secret/a/b/c"} {
		config := []byte("global\nbackend b\n x " + bad + "\n")
		if _, err := Needs(config, nil); err == nil || !strings.HasPrefix(err.Error(), "haproxy.cfg:3: hapsnap:secret/ must be") {
			t.Errorf("%s: %v", bad, err)
		}
		if _, err := Bind(draftOf(string(config)), Inputs{Layout: testLayout}); err == nil || !strings.Contains(err.Error(), ": haproxy.cfg:3: hapsnap:secret/ must be") {
			t.Errorf("bind %s: %v", bad, err)
		}
	}
	if _, err := Needs([]byte("userlist u\n#hapsnap users\n"), nil); !errors.As(err, new(*DirectiveError)) {
		t.Errorf("a bad directive: %v", err)
	}
}

func TestStandInValue(t *testing.T) {
	t.Parallel()
	a, b := SecretKey{snapshots.SecretName{Namespace: "shop", Name: "keys"}, "a"}, SecretKey{snapshots.SecretName{Namespace: "shop", Name: "keys"}, "b"}
	if first, second := standInValue(a, []byte("x")), standInValue(a, []byte("x")); first != second {
		t.Error("two instances get two words")
	}
	if standInValue(a, []byte("x")) == standInValue(b, []byte("x")) || standInValue(a, []byte("x")) == standInValue(a, []byte("y")) {
		t.Error("the word can be told from another")
	}
	if _, err := SecretValue([]byte(standInValue(a, nil))); err != nil {
		t.Error(err)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	keys := snapshots.SecretName{Namespace: "shop", Name: "keys"}
	live := Live{
		Users:  map[snapshots.SecretName][]htpasswd.User{keys: {{Name: "alice", Hash: htpasswdtest.Hashes["DES"]}}},
		Values: map[SecretKey]string{{keys, "a"}: "it's", {keys, "b"}: "it's more"},
	}
	config := "userlist u\n#hapsnap users shop/keys\nbackend b\n x hapsnap:secret/shop/keys/a hapsnap:secret/shop/keys/b\n"
	bound := must(Bind(draftOf(config), Inputs{Live: live, Layout: testLayout}))(t)
	text := "unknown keyword it's more in '" + htpasswdtest.Hashes["DES"] + "' and " + quoteWord("it's") + " of alice"
	if got := bound.Redact(text); got != "unknown keyword (hidden) in '(hidden)' and (hidden) of alice" {
		t.Errorf("redacted is %q", got)
	}
}
