package bind

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

func TestCountDescriptors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		want   Descriptors
	}{
		"nothing": {"", Descriptors{}},
		"as shipped": {`global
    fd-hard-limit 100000
defaults main
    default-server check inter 5s
frontend web from main
    bind 10.0.0.1:80,10.0.0.2:80
    bind :443
backend a from main
    server s1 10.0.0.1:80
    server s2 192.0.2.1:1 disabled
    # server s3 10.0.0.1:80
backend ready from main
    server instance 192.0.2.1:1 no-check
`, Descriptors{Checks: 2, Listeners: 3, HardLimit: 100000}},
		"what a line says counts more than the defaults": {`defaults
    default-server check
backend a
    default-server no-check
    server s1 10.0.0.1:80
    server s2 10.0.0.1:80 check agent-check
    server s3 10.0.0.1:80 agent-check no-agent-check
`, Descriptors{Checks: 2}},
		"defaults by name, from others, and the last": {`defaults one
    default-server check
defaults two from one
    default-server agent-check
defaults
    timeout connect 1s
backend a from two
    server s1 10.0.0.1:80
backend b
    server s1 10.0.0.1:80
listen c from one
    bind :81
    server-template s 5 10.0.0.1:80
`, Descriptors{Checks: 2 + 5, Listeners: 1}},
		"as HAProxy reads words": {`"global"
"maxconn" '300' # 400
  defaults "one" # two
default-server "check"
backend b from one # other
server s1 10.0.0.1:80 # agent-check
server "s2" 10.0.0.1:80 no-check
"server" s3 10.0.0.1:80 "#" agent-check
frontend f
b\ind :80
bind :81,:82 # ,:83
`, Descriptors{Checks: 3, Listeners: 2, MaxConn: 300}},
		"servers of templates": {`backend a
    server-template s 4 10.0.0.1:80 check
    server-template t 3-9 10.0.0.1:80 check agent-check
`, Descriptors{Checks: 4 + 2*7}},
		"maxconn of a server is none of the worker": {"global\n maxconn 300\ndefaults\n maxconn 7\nbackend a\n server s1 10.0.0.1:80 maxconn 5\n", Descriptors{MaxConn: 300}},
	} {
		if got := CountDescriptors([]byte(test.config)); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// A real HAProxy never starts with fewer descriptors than Least says. It starts with a hundred more, which it
// needs for itself.
func TestHAProxyNeedsTheLeastDescriptors(t *testing.T) {
	t.Parallel()
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		haproxy = "/usr/sbin/haproxy"
	}
	for _, global := range []string{"", "    maxconn 150\n"} {
		var b strings.Builder
		for n := range 40 {
			fmt.Fprintf(&b, "backend b%d\n    server s1 127.0.0.1:1\n    server s2 192.0.2.1:1 disabled\n    server s3 127.0.0.1:1 no-check\n", n)
		}
		config := func(limit int, socket string) string {
			return fmt.Sprintf("global\n    nbthread 1\n    fd-hard-limit %d\n%sdefaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n"+
				"    default-server check inter 600s\nfrontend f\n    bind unix@%s\n%s", limit, global, socket, b.String())
		}
		least := CountDescriptors([]byte(config(1, "s"))).Least()
		for limit, want := range map[int]bool{least - 1: false, least + 100: true} {
			dir := t.TempDir()
			socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "c")
			if err := os.WriteFile(file, []byte(config(limit, socket)), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := starts(t, haproxy, file, socket); got != want {
				t.Errorf("%q: with %d descriptors HAProxy starts: %v; at least %d are counted", global, limit, got, least)
			}
		}
	}
}

// starts reports whether HAProxy begins to listen on a socket. Then it stops HAProxy.
func starts(t *testing.T, haproxy, file, socket string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, haproxy, "-db", "-q", "-f", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { cancel(); <-ended }()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-ended:
			return false
		case <-tick.C:
			if _, err := os.Stat(socket); err == nil {
				return true
			}
		}
	}
}

// AppendWords returns the words that [haproxycfg.Line.Texts] returns.
func TestAppendWords(t *testing.T) {
	t.Parallel()
	list := [][]byte{[]byte("before")}
	for _, text := range []string{
		"", " ", "server", " server\ts1  10.0.0.1:80 ", "server s1 [fd00::1]:80", "[a b]", " [a b]", "[", "a [b]", "a\vb\fc", "é ü", "a \xff b",
		`server "s 1" 10.0.0.1:80`, `a\ b c`, "a # b", "#a", "# a", "a#b c", "a 'b", "a $B", `a "$B" c`, "a b\r", "a\rb", "a \r b", "a\x00b", "a \x00 b",
	} {
		line := haproxycfg.Line{Text: []byte(text)}
		var got []string
		for _, word := range AppendWords(list, line)[1:] {
			got = append(got, string(word))
		}
		if want := line.Texts(); !slices.Equal(got, want) {
			t.Errorf("%q has the words %q, want %q", text, got, want)
		}
	}
}
