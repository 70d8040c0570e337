package push

import (
	"errors"
	"strings"
	"testing"
)

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
