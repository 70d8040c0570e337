package sandbox

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// before and after are a haproxy.cfg outside and inside of a sandbox, line by line.
const (
	before = `
global
    stats socket /run/haproxy.sock mode 600
    log 10.0.0.1:514 local0
    chroot /var/lib/haproxy
    fd-hard-limit 1000
defaults main
    log global
    default-server check inter 5s ssl verify  "required"
frontend http from main
    bind "${BIND_ADDRESS}:80" # for all
    bind 10.0.0.1:8080,[::]:8081 accept-proxy interface eth0
    bind quic4@:443 ssl
    tcp-request connection reject if { src 10.0.0.0/8 }
    tcp-request connection expect-proxy layer4 if { src 10.0.0.0/8 }
    tcp-request content reject if { src 10.0.0.0/8 }
    log 10.0.0.1:514 local0
    http-request set-header X-Bind "bind 10.0.0.1:80"
backend terminate
    server one "abns@hapsnap/https/*/443" send-proxy-v2
frontend https
    bind abns@hapsnap/https/*/443 accept-proxy ssl crt /x verify required
backend web
    source 10.0.0.9
    server s1 192.0.2.1:1 weight 100 ssl verify required sni str('a b') # x
    server s2 db.example.net:5432 resolvers dns
    acl hapsnap_withheld bc_dst -m ip 127.0.0.0/8
    acl office src 127.0.0.0/8
`
	after = `
global



    fd-hard-limit 1000
defaults main
    log global
    default-server check inter 5s ssl verify  none
frontend http from main
    bind unix@/d/b0 accept-proxy 
    bind unix@/d/b1 accept-proxy interface eth0

    tcp-request session reject if { src 10.0.0.0/8 }

    tcp-request content reject if { src 10.0.0.0/8 }

    http-request set-header X-Bind "bind 10.0.0.1:80"
backend terminate
    server one unix@/d/i0 send-proxy-v2
frontend https
    bind unix@/d/i0 accept-proxy ssl crt /x verify required
backend web

    server s1 ours:web/s1 weight 100 ssl verify none sni str('a b') no-check no-agent-check
    server s2 ours:web/s2 resolvers dns no-check no-agent-check
    acl hapsnap_withheld always_false
    acl office src 127.0.0.0/8
`
)

func ours(backend, server, _ string) string { return "ours:" + backend + "/" + server }

func TestEnclose(t *testing.T) {
	t.Parallel()
	e := enclose(before, "/d", ours)
	if diff := cmp.Diff(strings.Split(after, "\n"), strings.Split(e.config, "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if want := map[int]string{80: "/d/b0", 8080: "/d/b1", 8081: "/d/b1"}; !maps.Equal(e.sockets, want) {
		t.Errorf("sockets: %v", e.sockets)
	}
}

// A server may track another one only if that is checked.
func TestEncloseKeepsChecksThatAreTracked(t *testing.T) {
	t.Parallel()
	const config = "backend a\n    server s1 192.0.2.1:1 check\nbackend b\n    server s1 192.0.2.1:1 track a/s1\n"
	want := strings.ReplaceAll(strings.ReplaceAll(config, "192.0.2.1:1 check", "ours:a/s1 check"), "192.0.2.1:1", "ours:b/s1")
	if got := enclose(config, "/d", ours).config; got != want {
		t.Errorf("%s", got)
	}
}

// An action that names a socket within HAProxy uses the socket of the sandbox, and not that of another HAProxy
// on the machine.
func TestEncloseKeepsActionsInside(t *testing.T) {
	t.Parallel()
	const config = "frontend m\n    bind abns@m/1\nbackend a\n    http-request lua.copy abns@m/1 b if { rand(2) lt 1 }\n    http-request lua.copy abns@n/1 b\n"
	want := "frontend m\n    bind unix@/d/i0 \nbackend a\n    http-request lua.copy unix@/d/i0 b if { rand(2) lt 1 }\n    http-request lua.copy abns@n/1 b\n"
	if got := enclose(config, "/d", ours).config; got != want {
		t.Errorf("%s", got)
	}
}
