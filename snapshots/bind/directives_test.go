package bind

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestDirectives(t *testing.T) {
	config := `global
    maxconn 100
frontend web
    #hapsnapper is another comment, and so is
    # hapsnap servers shop/web
backend "shop" from base # a comment
    #hapsnap servers shop/web:http weight=90 slots=4 -- check inter 5s  sni str(a-- b)
    #hapsnap   servers	shop/canary  weight=0 --
    server fixed 127.0.0.1:1 # #hapsnap servers no/directive
listen tcp:53
#hapsnap servers dns/dns.v2:dns-tcp -- ca-file files/ca.pem pool-purge-delay '#1s' "#" \#
backend empty#comment
	#hapsnap servers shop/web:http`
	got, err := Directives([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	web := snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}
	want := []Directive{
		{Line: 7, Backend: "shop", Service: web, Weight: 90, Slots: 4, Options: "check inter 5s  sni str(a-- b)"},
		{Line: 8, Backend: "shop", Index: 1, Service: snapshots.ServicePort{Namespace: "shop", Service: "canary", Port: ""}},
		{Line: 11, Backend: "tcp:53", Service: snapshots.ServicePort{Namespace: "dns", Service: "dns.v2", Port: "dns-tcp"}, Weight: 100, Options: `ca-file files/ca.pem pool-purge-delay '#1s' "#" \#`},
		{Line: 13, Backend: "empty", Service: web, Weight: 100},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("directives (-want +got):\n%s", diff)
	}
}

func TestUsersDirectives(t *testing.T) {
	config := "userlist one\n  #hapsnap users shop/auth\n  #hapsnap\tusers  shop/more\r\nbackend b\n#hapsnap servers shop/web\nuserlist two\n#hapsnap users shop/auth"
	got, err := UsersDirectives([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	auth := snapshots.SecretName{Namespace: "shop", Name: "auth"}
	want := []UsersDirective{{2, "one", auth}, {3, "one", snapshots.SecretName{Namespace: "shop", Name: "more"}}, {7, "two", auth}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("directives (-want +got):\n%s", diff)
	}
}

func TestDirectivesWithCRLF(t *testing.T) {
	got, err := Directives([]byte("backend b\r\n    #hapsnap servers shop/web -- check\r\n"))
	if err != nil || len(got) != 1 || got[0].Options != "check" || got[0].Backend != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What separates words for HAProxy separates them in directives, and nothing else does.
func TestDirectiveText(t *testing.T) {
	t.Parallel()
	for _, blank := range []string{" ", "\t", "\v", "\f", "\r"} {
		line := blank + "#hapsnap" + blank + "servers shop/web" + blank
		if text, ok := DirectiveText([]byte(line)); !ok || text != "servers shop/web" {
			t.Errorf("%q is read as %q, %t", line, text, ok)
		}
	}
	for _, line := range []string{"\u00a0#hapsnap servers shop/web", "\u0085#hapsnap servers shop/web", "#hapsnap\u00a0servers shop/web", "#hapsnapservers shop/web", "# hapsnap servers shop/web", ""} {
		if text, ok := DirectiveText([]byte(line)); ok {
			t.Errorf("%q is read as %q", line, text)
		}
	}
}

func TestDirectiveErrors(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"unknown word", "backend b\n#hapsnap server shop/web", `2: #hapsnap: unknown directive "server shop/web"`},
		{"servers in a userlist", "userlist u\n#hapsnap servers shop/web", "2: #hapsnap: servers belong in a backend or listen section"},
		{"users in a backend", "userlist u\nbackend b\n#hapsnap users shop/auth", "3: #hapsnap: users belong in a userlist section"},
		{"users of nobody", "userlist u\n#hapsnap users", "users needs NAMESPACE/SECRET"},
		{"users with an argument", "userlist u\n#hapsnap users shop/auth admin", "users needs NAMESPACE/SECRET, and nothing else"},
		{"users without a namespace", "userlist u\n#hapsnap users auth", `"auth" is not NAMESPACE/SECRET`},
		{"users of a strange Secret", "userlist u\n#hapsnap users shop/a$b", `"shop/a$b" is not NAMESPACE/SECRET`},
		{"users twice", "userlist u\n#hapsnap users shop/auth\n#hapsnap users shop/auth", "3: #hapsnap: userlist u has the users of shop/auth already"},
		{"no word", "backend b\n  #hapsnap  ", `2: #hapsnap: unknown directive ""`},
		{"before any section", "#hapsnap servers shop/web", "1: #hapsnap: servers belong in a backend or listen section"},
		{"in a frontend", "backend b\nfrontend f\n#hapsnap servers shop/web", "3: #hapsnap: servers belong in a backend"},
		{"in a peers section", "backend b\n\npeers p\n#hapsnap servers shop/web", "4: #hapsnap: servers belong in a backend"},
		{"backend without a name", "backend\n#hapsnap servers shop/web", `section backend "" has no plain name`},
		{"backend named at start-up", "backend ${NAME}\n#hapsnap servers shop/web", `section backend "${NAME}" has no plain name`},
		{"no service", "backend b\n#hapsnap servers", "servers needs NAMESPACE/SERVICE[:PORT]"},
		{"no namespace", "backend b\n#hapsnap servers web", `"web" is not NAMESPACE/SERVICE[:PORT]`},
		{"empty port", "backend b\n#hapsnap servers shop/web:", `"shop/web:" is not NAMESPACE/SERVICE[:PORT]`},
		{"strange service", "backend b\n#hapsnap servers shop/w$b", `"shop/w$b" is not NAMESPACE/SERVICE[:PORT]`},
		{"options without --", "backend b\n#hapsnap servers shop/web check", `unknown argument "check" (server options follow " -- ")`},
		{"misspelt argument", "backend b\n#hapsnap servers shop/web wieght=1", `unknown argument "wieght=1"`},
		{"weight not a number", "backend b\n#hapsnap servers shop/web weight=lots", `weight: "lots" is not a whole number from 0 to 1000000`},
		{"weight with a sign", "backend b\n#hapsnap servers shop/web weight=+1", `weight: "+1" is not a whole number`},
		{"weight too large", "backend b\n#hapsnap servers shop/web weight=1000001", `weight: "1000001" is not`},
		{"no slots", "backend b\n#hapsnap servers shop/web slots=0", `slots: "0" is not a whole number from 1 to 10000`},
		{"argument twice", "backend b\n#hapsnap servers shop/web slots=2 slots=2", "slots is given twice"},
		{"service twice", "backend b\n#hapsnap servers shop/web\n#hapsnap servers shop/web weight=3", "3: #hapsnap: backend b has the servers of shop/web already"},
		{"comment in options", "backend b\n#hapsnap servers shop/web -- check # often", "options hold an unquoted #"},
		{"comment after a quote", `backend b` + "\n" + `#hapsnap servers shop/web -- sni "a" #`, "options hold an unquoted #"},
		{"weight in options", "backend b\n#hapsnap servers shop/web -- weight 3", "options hold weight; use weight=N"},
		{"quoted weight in options", "backend b\n#hapsnap servers shop/web -- \"wei\"ght 3", "options hold weight; use weight=N"},
		{"quoted enabled in options", "backend b\n#hapsnap servers shop/web -- 'enabled'", "options hold enabled"},
		{"an open quote", "backend b\n#hapsnap servers shop/web -- sni \"a", "options: byte 5: unmatched quote"},
		{"a line that ends early", "backend b\n#hapsnap servers shop/web -- check\rinter 1s", "options hold what ends a line"},
		{"a word that only begins like users", "userlist u\n#hapsnap users# shop/auth", `unknown directive "users# shop/auth"`},
		{"disabled in options", "backend b\n#hapsnap servers shop/web -- check disabled", "options hold disabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Directives([]byte(tt.config))
			var e *DirectiveError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestServerNames(t *testing.T) {
	first, third := Directive{Index: 0}, Directive{Index: 2}
	for want, got := range map[string]string{
		"s1": first.ServerName(0), "s12": first.ServerName(11),
		"s3-1": third.ServerName(0), "s3-12": third.ServerName(11),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A Binder that lists the needs of a snapshot and then binds it reads the directives once, and gets the same
// result.
func TestDirectivesAreReadOnce(t *testing.T) {
	t.Parallel()
	s, in := large(t, 20)
	var b Binder
	for n := 1; n <= 3; n++ {
		if n == 3 { // another text, which cannot be followed
			s.Files = slices.Clone(s.Files)
			for i, f := range s.Files {
				if f.Path == snapshots.ConfigFile {
					s.Files[i].Content = append(bytes.Clone(f.Content), "#hapsnap frobnicate\n"...)
				}
			}
		}
		needs, err := b.Needs(s.Config(), s.Manifest.Spec.Certificates)
		want, wantErr := Needs(s.Config(), s.Manifest.Spec.Certificates)
		if !reflect.DeepEqual(needs, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) || (err != nil) != (n == 3) {
			t.Errorf("needs %v, %v; want %v, %v", needs, err, want, wantErr)
		}
		slots, err := b.Placeholder(s)
		wantSlots, wantErr := Placeholder(s)
		if !reflect.DeepEqual(slots, wantSlots) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("slots differ: %v, %v", err, wantErr)
		}
		bound, err := b.Bind(s, in)
		wantBound, wantErr := Bind(s, in)
		if !bytes.Equal(bound.Config, wantBound.Config) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("bound otherwise: %v, %v", err, wantErr)
		}
		if n < 3 && b.directives.parsed != 1 {
			t.Errorf("after %d rounds the directives were read %d times", n, b.directives.parsed)
		}
	}
}
