package bind

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDynamicBackends(t *testing.T) {
	config := []byte(`global
    maxconn 100
defaults main
    balance roundrobin
    default-server check inter 5s
defaults hashed from main
    balance source
backend plain from main
    #hapsnap servers shop/plain:http -- maxconn 100
backend own from main
    balance leastconn
    default-server maxconn 10
    stick-table type ip size 1k store http_req_rate(10s)
    #hapsnap servers shop/own:http
backend hashes from hashed
    #hapsnap servers shop/hashes:http
backend consistent from main
    balance uri
    hash-type consistent
    #hapsnap servers shop/consistent:http
backend static from main
    balance static-rr
    #hapsnap servers shop/static:http
backend first from main
    balance first
    #hapsnap servers shop/first:http
backend random from main
    balance random(2)
    #hapsnap servers shop/random:http
backend session from main
    cookie SRV insert indirect
    #hapsnap servers shop/session:http
backend of-addresses from main
    cookie SRV insert indirect dynamic nocache
    #hapsnap servers shop/of-addresses:http
backend sticks from main
    stick on src
    #hapsnap servers shop/sticks:http
backend chooses from main
    use-server s1 if { path /one }
    #hapsnap servers shop/chooses:http
backend shared from main
    #hapsnap servers shop/shared:http weight=90
    #hapsnap servers shop/canary:http weight=10
backend mixed from main
    server external 192.0.2.9:80
    #hapsnap servers shop/mixed:http
backend fixed from main
    server s1 192.0.2.9:80
`)
	directives, err := Directives(config)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"plain":  {"check", "inter", "5s", "maxconn", "100"},
		"own":    {"check", "inter", "5s", "maxconn", "10"},
		"random": {"check", "inter", "5s"},
	}
	if diff := cmp.Diff(want, DynamicBackends(config, directives)); diff != "" {
		t.Errorf("backends (-want +got):\n%s", diff)
	}
}

// Our reader finds the sections and words that HAProxy finds, whatever quotes, indentation and comments a
// template has.
func TestBackendsAsHAProxyReadsThem(t *testing.T) {
	t.Parallel()
	config := []byte(`defaults "main" # from other
"balance" "roundrobin"
default-server check # cookie
  defaults hashed from "main" # from other
'balance' source # roundrobin
hash-type "consistent" # map-based
backend plain from main # from hashed
#hapsnap servers shop/plain:http weight=50 -- maxconn 100
backend static from main
"balance" static-rr
#hapsnap servers shop/static:http weight=50
  backend hashed from hashed
#hapsnap servers shop/hashed:http weight=50
backend sticks from main
"cookie" SRV insert
#hapsnap servers shop/sticks:http -- check-sni "a b"
backend quoted from main
#hapsnap servers shop/quoted:http -- sni "a b"
`)
	directives, err := Directives(config)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"plain": {"check", "maxconn", "100"}, "quoted": {"check", "sni", `"a b"`}}
	if diff := cmp.Diff(want, DynamicBackends(config, directives)); diff != "" {
		t.Errorf("dynamic (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"static": true}, StaticBackends(config, directives)); diff != "" {
		t.Errorf("static (-want +got):\n%s", diff)
	}
}
