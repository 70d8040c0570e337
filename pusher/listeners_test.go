package pusher

import (
	"fmt"
	"testing"
)

func TestListeners(t *testing.T) {
	t.Parallel()
	const text = `
frontend http
    bind :80
    bind *:80 # once
    bind 0.0.0.0:8080,[::]:8081 v4v6
frontend status
bind ipv4@10.0.0.1:8404 # not indented
    bind "quic6@[2001:db8::1]:443" ssl
    bind ${ADDRESS}:9000
    bind :${PORT}
    bind unix@/run/socket
    bind :9100-9200
    bind
    binding :77
`
	got := ""
	for _, l := range listenersOf([]byte(text)) {
		got += fmt.Sprintf("%s %d, ", l.address, l.port)
	}
	if want := "invalid IP 80, invalid IP 8080, invalid IP 8081, 10.0.0.1 8404, 2001:db8::1 443, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
