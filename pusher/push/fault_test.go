package push

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// TestInstanceFault classifies real messages of HAProxy 2.6 to 3.2 and of the Dataplane API.
func TestInstanceFault(t *testing.T) {
	t.Parallel()
	const (
		before  = "global\n  daemon\nfrontend web\n  bind :80\n  bind :443   ssl crt /c/a.pem\nfrontend stats\n  bind 10.0.0.1:9000\n"
		want    = "global\n    daemon\nfrontend web\n    bind :80\n    bind :443 ssl crt /c/a.pem\nfrontend partner\n    bind 127.0.20.1:18404\nfrontend stats\n    bind 10.0.0.1:9000\n    bind 10.0.0.1:9001\n"
		refused = ""
	)
	alert := func(text string) string {
		return "Reload failed: failed to reload configuration, [NOTICE]   (15595) : Reloading HAProxy\n[ALERT]    (15595) : " + text + "\n[ALERT]    (15595) : [/usr/sbin/haproxy.main()] Some protocols failed to start their listeners! Exiting.\n"
	}
	check := func(text string) string {
		return "validation error: exit status 1: err transactionId=7c \nmsg=\"config parsing [/tmp/haproxy.cfg.7c:9] : " + text + "\"\nmsg=\"config Error(s) found in configuration file : /tmp/haproxy.cfg.7c\"\nmsg=\"config Fatal errors found in configuration.\""
	}
	for name, tt := range map[string]struct{ said, hint string }{
		"a map":                     {check("error detected while parsing an 'http-request deny' condition : invalid args in converter 'map' : failed to open pattern file </etc/haproxy/maps/host.map> in ACL expression 'src,map(/etc/haproxy/maps/host.map)'."), "directories"},
		"a list of an ACL":          {check("error detected while parsing ACL 'x' : failed to open pattern file </x.lst>."), "directories"},
		"a certificate":             {check("'bind :443' in section 'frontend' : unable to stat SSL certificate from file '/c/a.pem' : No such file or directory."), "directories"},
		"a list of certificates":    {check("'bind :443' in section 'frontend' : 'crt-list' : cannot open file '/c/x.txt' : No such file or directory"), "directories"},
		"authorities":               {alert("config : [h.cfg:7] : 'server f/a' : Couldn't open the ca-file '/c/ca.pem' (No such file or directory)."), "directories"},
		"authorities, in short":     {alert("config : 'ca-file' : unable to load /c/ca.pem."), "directories"},
		"an error page":             {check("errorfile : error opening file '/g/503.http'."), "directories"},
		"a script":                  {check("error in Lua file '/g/auth.lua': cannot open /g/auth.lua: No such file or directory"), "directories"},
		"a file, and what it takes": {check("failed to open pattern file </m/a.map>.") + check("no such ACL : 'x'"), "directories"},
		"descriptors":               {alert("[/usr/sbin/haproxy.main()] Cannot raise FD limit to 30232, limit is 20000."), "open files"},
		"descriptors of a listener": {alert("Starting frontend web: cannot create listening socket (Too many open files) [0.0.0.0:80]"), "open files"},
		"permission":                {check("unable to load certificate from file '/c/a.pem': Permission denied."), "may not"},
		"chroot":                    {alert("[haproxy.main()] Cannot chroot(/var/lib/haproxy)."), "chroot"},
		"a user":                    {check("cannot find user id for 'haproxy' (0:Success)"), "user"},
		"the disk":                  {"validation error: open /tmp/haproxy.cfg.7c: no space left on device", "disk"},
		"memory":                    {"validation error: signal: killed", "memory"},
		"no haproxy":                {"validation error: fork/exec /opt/haproxy: exec format error", "haproxy_bin"},
		"a port that it had":        {alert("Binding [/etc/haproxy/haproxy.cfg:64] for frontend web: cannot bind socket (Address already in use) for [0.0.0.0:80]"), "another process"},
		"a right that it had":       {alert("Starting frontend web: cannot bind socket (Permission denied) [0.0.0.0:80]"), "another process"},

		"a new port":                 {alert("Binding [/etc/haproxy/haproxy.cfg:64] for frontend partner: cannot bind socket (Address already in use) for [127.0.20.1:18404]"), refused},
		"a new port, not permitted":  {alert("Binding [/etc/haproxy/haproxy.cfg:64] for frontend partner: cannot bind socket (Permission denied) for [0.0.0.0:80]"), refused},
		"a new address":              {alert("Binding [/etc/haproxy/haproxy.cfg:64] for frontend partner: cannot bind socket (Cannot assign requested address) for [10.9.9.9:80]"), refused},
		"one more port of a section": {alert("Binding [/etc/haproxy/haproxy.cfg:64] for frontend stats: cannot bind socket (Address already in use) for [10.0.0.1:9001]"), refused},
		"a keyword":                  {check("unknown keyword 'bogus_kw' in 'global' section"), refused},
		"an ACL":                     {check("error detected while parsing switching rule : no such ACL : 'x'."), refused},
		"a backend":                  {alert("config : Proxy 'f': unable to find required default_backend: 'no'."), refused},
		"a certificate without key":  {check("'bind :443' in section 'frontend' : No Private Key found in '/c/a.pem'."), refused},
		"a certificate that is none": {check("'bind :443' in section 'frontend' : unable to load SSL certificate into SSL Context '/c/a.pem'."), refused},
		"a name that is not found":   {alert("config : [h.cfg:8] : 'server b/s' : could not resolve address 'nowhere.invalid'."), refused},
		"a duplicate":                {alert("config : Parsing [h.cfg:9]: backend 'b' has the same name as another"), refused},
		"nothing":                    {"", refused},
	} {
		hint, ok := instanceFault(tt.said, []byte(want), []byte(before))
		if ok != (tt.hint != refused) || !strings.Contains(hint, tt.hint) {
			t.Errorf("%s: the instance is at fault: %v, %q", name, ok, hint)
		}
	}
}

// Both texts are read as HAProxy reads them: the bound one as the templates write it, and the former one as the
// Dataplane API writes it.
func TestBinds(t *testing.T) {
	t.Parallel()
	for config, want := range map[string][]string{
		"frontend web\n  bind :80\n": {"bind :80"},
		"  \"frontend\" 'web' # one\nbind :80 # the web\n  \"bind\" \":443\" ssl\n": {"bind :80", "bind :443 ssl"},
		"bind :1\nfrontend other # web\n bind :80\nbackend web\n # bind :81\n":      nil,
		"frontend \"web\nbind :80\n": nil,
	} {
		if got := binds("web", []byte(config)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", config, got, want)
		}
	}
}

// The description of a foreign file names only first words of lines. It names none if only quotes, blanks and
// comments differ.
func TestForeignWords(t *testing.T) {
	t.Parallel()
	bound := []byte("global\nmaxconn 10\n  backend \"web\" # shop\nbalance 'roundrobin' # fair\n")
	for found, want := range map[string]string{
		"global\n  maxconn 10\n\nbackend web\n  balance roundrobin\n":                          "another text",
		"global\n  maxconn 10\n  \"stats\" timeout 1s\nbackend web\n  option \"forwardfor\"\n": "another text, in global: stats, backend web: option",
		"global\nlisten \"a\"\nbind :80 # secret\n":                                            "another text, in listen a: listen, listen a: bind",
		"listen \"a\\x1b\"\n": "another text, in listen a\\x1b: listen",
	} {
		if got := foreignWords([]byte(found), bound); got != want {
			t.Errorf("%q: %s, want %s", found, got, want)
		}
	}
}

// The message for people has what HAProxy said, and what to look at.
func TestGistOfAFault(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("push: %w", &instanceError{errors.New("post: [ALERT] (1) : config : 'ca-file' : unable to load /c/ca.pem"), "look there"})
	if got := Gist(err); got != "the instance is at fault: 'ca-file' : unable to load /c/ca.pem; look there" {
		t.Error(got)
	}
	if !errors.Is(err, ErrInstance) || errors.Is(err, ErrRefused) || errors.Is(err, dataplane.ErrValidation) {
		t.Errorf("it is of another class: %v", err)
	}
}

func TestGist(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a reload": {
			"refused: post configuration: Reload failed: failed to reload configuration, [NOTICE]   (15595) : Reloading HAProxy\n" +
				"[WARNING]  (16686) : Paused frontend http.\nPaused frontend http.\n" +
				"[ALERT]    (15595) : Binding [/etc/haproxy.cfg:64] for frontend partner: cannot bind socket (Address already in use) for [127.0.20.1:18404]\n" +
				"[ALERT]    (15595) : [/usr/sbin/haproxy.main()] Some protocols failed to start their listeners! Exiting.\n (status 400)",
			"refused: Binding [/etc/haproxy.cfg:64] for frontend partner: cannot bind socket (Address already in use) for [127.0.20.1:18404]",
		},
		"a verdict": {
			`refused: post configuration: validation error: exit status 1: err transactionId=x` + "\n" +
				`msg="config : parsing [/tmp/haproxy.cfg.x:5] unknown keyword 'bogus_kw' in 'global' section"` + "\n" +
				`msg="config Error(s) found in configuration file : /tmp/haproxy.cfg.x"` + "\n" + `msg="config Fatal errors found in configuration."`,
			"refused: config : parsing [/tmp/haproxy.cfg.x:5] unknown keyword 'bogus_kw' in 'global' section",
		},
		"noise": {
			"refused: post configuration: Reload failed: [ALERT] (12) : socketpair: Cannot transfer the fd 3 over sockpair@5. Giving up.\n" +
				"[ALERT] (12) : config : parsing [/etc/haproxy.cfg:67] : defaults section 'main' (declared at /etc/haproxy.cfg:15) is explicitly referenced by another proxy and implicitly used here. To avoid any ambiguity don't mix both usage.\n" +
				"[ALERT]    (15595) : Starting frontend web: cannot bind socket (Address already in use) [127.0.0.1:80]\n" +
				"[ALERT] (12) : Current worker (31) exited with code 1 (Exit)\n[ALERT] (12) : exit-on-failure: killing every processes with SIGTERM\n (status 400)",
			"refused: Starting frontend web: cannot bind socket (Address already in use) [127.0.0.1:80]",
		},
		"nothing but noise": {
			"refused: post configuration: Reload failed: [ALERT] (12) : socketpair: Cannot transfer the fd 3 over sockpair@5. Giving up.\n (status 400)",
			"refused: HAProxy did not start with it, and did not say why",
		},
		"another error": {"post configuration: unreachable:\n\tconnection refused", "post configuration: unreachable: connection refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Gist(errors.New(test.text)); got != test.want {
				t.Errorf("the gist is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	if got := Gist(errors.New(strings.Repeat("x", 5000))); len(got) > maxGist+len("…") {
		t.Errorf("the gist has %d bytes", len(got))
	}
}
