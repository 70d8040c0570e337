package validate_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
)

// wrapped returns a checker. Its HAProxy runs the script before each check, and records each check in a file.
func wrapped(t *testing.T, script string) (c *validate.Checker, calls func() []string) {
	t.Helper()
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, log := filepath.Join(dir, "haproxy"), filepath.Join(dir, "log")
	text := "#!/bin/sh\n[ \"$1\" = -v ] || echo \"$*\" >>" + log + "\n" + script + "\nexec " + haproxy + " \"$@\"\n"
	scripttest.Write(t, path, text)
	if c, err = validate.Find(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return c, func() []string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

const (
	quickly = "-c -V -f quick-start.cfg -f haproxy.cfg"
	asItIs  = "-c -V -f haproxy.cfg"
)

// HAProxy need not load certificate authorities that a configuration does not use. If a configuration sets
// something about them, the check runs without our file.
func TestChecksStartQuickly(t *testing.T) {
	t.Parallel()
	c, calls := wrapped(t, "")
	accepted(t, c, validate.Input{Artifact: artifact(t, nil, model())})
	httpclient := "    httpclient.ssl.verify required\n    httpclient.ssl.ca-file /nowhere/ca.pem\n"
	_, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, map[string]string{"extend/global.cfg": httpclient}, model())})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(calls(), "; "), quickly+"; "+asItIs; got != want {
		t.Errorf("HAProxy was called with %s, want %s", got, want)
	}
}

// Our file's section ends with the file: a configuration that begins without a section is still refused.
func TestQuickStartLendsNoSection(t *testing.T) {
	t.Parallel()
	c := find(t)
	v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, map[string]string{"haproxy/00-0.cfg": "maxconn 10\n"}, model())})
	if err != nil || len(v.Faults) == 0 || !strings.Contains(v.Faults[0].Message, "out of section") {
		t.Errorf("%v, %+v", err, v)
	}
}

// A HAProxy that does not know the setting in our file is run without the file, now and later.
func TestQuickStartIsNotForEveryHAProxy(t *testing.T) {
	t.Parallel()
	c, calls := wrapped(t, `case "$*" in *quick-start*) echo "[ALERT]    (1) : config : parsing [quick-start.cfg:3] : unknown keyword" >&2; exit 1;; esac`)
	for range 2 {
		accepted(t, c, validate.Input{Artifact: artifact(t, nil, model())})
	}
	if got, want := strings.Join(calls(), "; "), quickly+"; "+asItIs+"; "+asItIs; got != want {
		t.Errorf("HAProxy was called with %s, want %s", got, want)
	}
}

// A tenant who has HAProxy quote the name of our file slows nobody else down.
func TestQuickStartStaysForOthers(t *testing.T) {
	t.Parallel()
	c, calls := wrapped(t, `if [ "$1" != -v ] && grep -q mischief haproxy.cfg; then echo "[ALERT]    (1) : config : parsing [haproxy.cfg:60] : unknown keyword 'quick-start.cfg:3'" >&2; exit 1; fi`)
	bad := map[string]string{"extend/defaults.cfg": "    # mischief\n"}
	if v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, bad, model())}); err != nil || len(v.Faults) != 1 {
		t.Errorf("%v, %v", v, err)
	}
	accepted(t, c, validate.Input{Artifact: artifact(t, nil, model())})
	if got, want := strings.Join(calls(), "; "), quickly+"; "+asItIs+"; "+quickly; got != want {
		t.Errorf("HAProxy was called with %s, want %s", got, want)
	}
}

// HAProxy names the line that it was reading when the system gave it no more memory or files. No object is at fault for
// that: the check itself failed, and is made again later.
func TestShortageIsNobodysFault(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"[ALERT]    (1) : config : parsing [haproxy.cfg:60] : proxy 'shop_web_http': out of memory.",
		"[ALERT]    (1) : config : Unable to allocate SSL session cache.",
		"[ALERT]    (1) : config : parsing [haproxy.cfg:60] : error in Lua file 'hapsnap.lua': cannot open hapsnap.lua: Too many open files",
	} {
		c, _ := wrapped(t, `[ "$1" = -v ] || { echo "`+said+`" >&2; exit 1; }`)
		verdict, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, nil, model())})
		if err == nil || len(verdict.Faults) > 0 {
			t.Errorf("%s: got the faults %v and the error %v, want an error alone", said, verdict.Faults, err)
		}
	}
}

// A tenant hides no shortage by words that he has HAProxy quote: no object is at fault for it. Neither does he make one up.
func TestShortageIsNotHidden(t *testing.T) {
	t.Parallel()
	words := map[string]string{"extend/defaults.cfg": "    # it is Out\\ of" + `" memory"` + " again, (null) and all\n"}
	for name, test := range map[string]struct {
		script string
		faults int
		failed bool
	}{
		"a shortage":          {`[ "$1" = -v ] || { echo "[ALERT]    (1) : config : parsing [haproxy.cfg:60] : proxy 'shop_web_http': out of memory." >&2; exit 1; }`, 0, true},
		"one that passes":     {`[ "$1" = -v ] || { mkdir "$0.once" 2>/dev/null && { echo "[ALERT]    (1) : config : parsing [haproxy.cfg:60] : out of memory." >&2; exit 1; }; }`, 0, false},
		"one that is made up": {`for f in "$@"; do :; done; [ "$1" != -v ] && grep -q again "$f" && { echo "[ALERT]    (1) : config : parsing [haproxy.cfg:60] : unknown keyword out of memory." >&2; exit 1; }`, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, calls := wrapped(t, test.script)
			verdict, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, words, model())})
			if len(verdict.Faults) != test.faults || (err != nil) != test.failed {
				t.Errorf("got the faults %v and the error %v after %v", verdict.Faults, err, calls())
			}
		})
	}
}
