package validate

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// These are all forms in which HAProxy 2.6 to 3.4 write messages.
func TestParseOutput(t *testing.T) {
	t.Parallel()
	output := `[NOTICE]   (24376) : haproxy version is 2.6.12-1+deb12u4
[NOTICE]   (24376) : path to executable is /usr/sbin/haproxy
[ALERT]    (24376) : config : parsing [haproxy.cfg:5] : unexpected character 'b' in 'timeout connect'
[ALERT]    (24376) : config : [haproxy.cfg:11] : 'server a/s1' : unknown keyword 'banana'.
[ALERT]    (24376) : config : Parsing [haproxy.cfg:13]: backend 'a' has the same name as backend 'a' declared at haproxy.cfg:10.
[ALERT]    (24376) : config : parsing [haproxy.cfg:14]: unmatched quote at position 21:
  http-request foo "bar
                   ^
[WARNING]  (24376) : config : frontend 'f' has no 'bind' directive.
[ALERT]    (24376) : Proxy 'f': unable to find required default_backend: 'no'.
[ALERT]    (24376) : config : parsing [haproxy.cfg:9] : 'bind *:8443' in section 'frontend' : 'crt-list' : parsing [/s/general/bad.crtlist:2]: unknown ssl keyword bogus
[ALERT]    (24376) : config : parsing [haproxy.cfg:10] : invalid args in converter 'map_ip' : 'a' is not a valid IPv4 or IPv6 address at line 1 of file '/s/maps/bad.map'.
[ALERT]    (24376) : config : parsing [haproxy.cfg:8] : 'bind unix@f.sock' in section 'frontend' : 
  'crt-list' : error processing line 5 in file '/s/general/bad.crtlist' : No Private Key found in '/s/certs/ca.pem.key'.
  unable to load SSL private key into SSL Context '/s/certs/ca.pem': passed a null parameter.
[WARNING]  (24376) : config : hlua: please set "tune.lua.bool-sample-conversion" tunable to either "normal" or "pre-3.1-bug" explicitly to avoid ambiguities.
[ALERT]    (24376) : config : Error(s) found in configuration file : haproxy.cfg
[ALERT]    (24376) : config : Fatal errors found in configuration.
`
	want := []message{
		{"ALERT", "haproxy.cfg", 5, "unexpected character 'b' in 'timeout connect'"},
		{"ALERT", "haproxy.cfg", 11, "'server a/s1' : unknown keyword 'banana'"},
		{"ALERT", "haproxy.cfg", 13, "backend 'a' has the same name as backend 'a' declared at haproxy.cfg:10"},
		{"ALERT", "haproxy.cfg", 14, "unmatched quote at position 21"},
		{"WARNING", "", 0, "frontend 'f' has no 'bind' directive"},
		{"ALERT", "", 0, "Proxy 'f': unable to find required default_backend: 'no'"},
		{"ALERT", "/s/general/bad.crtlist", 2, "'bind *:8443' in section 'frontend' : 'crt-list' : unknown ssl keyword bogus"},
		{"ALERT", "/s/maps/bad.map", 1, "invalid args in converter 'map_ip' : 'a' is not a valid IPv4 or IPv6 address"},
		{"ALERT", "/s/general/bad.crtlist", 5, "'bind unix@f.sock' in section 'frontend' : 'crt-list' : No Private Key found in '/s/certs/ca.pem.key'"},
	}
	if diff := cmp.Diff(want, parseOutput(output, anything)); diff != "" {
		t.Error(diff)
	}
}

// anything accepts every line of every file.
func anything(string, int) bool { return true }

func TestShortage(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"[ALERT]    (1) : config : parsing [haproxy.cfg:60] : 'bind *:443' in section 'frontend' : out of memory.": "'bind *:443' in section 'frontend' : out of memory",
		"[ALERT]    (1) : config : (null)parsing [haproxy.cfg:9] : x":                                              "(null)parsing [haproxy.cfg:9] : x",
		"Lua init: not enough memory":                                                          "Lua init: not enough memory",
		"[ALERT]    (1) : Cannot allocate memory!":                                             "Cannot allocate memory!",
		"[ALERT]    (1) : config : unable to stat 'a' : Too many open files.":                  "unable to stat 'a' : Too many open files",
		"[ALERT]    (1) : config : parsing [haproxy.cfg:60] : unknown keyword 'out of memory'": "",
		// A tenant wrote this.
		"[ALERT]    (1) : config : parsing [haproxy.cfg:60] : unknown keyword no more memory": "",
	} {
		if got, _ := shortage("[NOTICE]   (1) : haproxy version is 2.6.12\n"+said+"\n", []byte(`http-request deny if { path "no\ More" memory }`)); got != want {
			t.Errorf("shortage(%q) = %q, want %q", said, got, want)
		}
	}
}

// A tenant who has HAProxy quote such words has us look at each line of a configuration of a million lines: that makes next to
// nothing of those that do not say them.
func TestShortageIsSoughtQuickly(t *testing.T) {
	const lines = 1000
	config := bytes.Repeat([]byte("    http-request set-header X-Forwarded-Proto https if { ssl_fc }\n"), lines)
	said := strings.Repeat("[ALERT]    (1) : config : parsing [haproxy.cfg:60] : unknown keyword out of memory\n", lines)
	config = append(config, "    out of memory\n"...)
	n := testing.AllocsPerRun(1, func() {
		if _, doubtful := shortage(said, config); !doubtful || says(silence(config), "memory") {
			t.Error("it is not found")
		}
	})
	if n > 20*lines {
		t.Errorf("%.0f allocations for %d lines", n, lines)
	}
}

// A tenant that may write lines writes such a message in any way that HAProxy reads, and in a line of its own. It is still the
// fault of its line, and stops nobody else.
func TestShortageOfSpoofs(t *testing.T) {
	t.Parallel()
	haproxy := "haproxy"
	if path := os.Getenv("HAPROXY"); path != "" {
		haproxy = path
	}
	for _, line := range []string{
		`http-request set-header X "%[foo\n(null) x]"`, `http-request set-header X "%[foo\n\x28null) x]"`, `http-request set-header X "%[foo\n${NOPE_-(nu}ll) x]"`,
		`http-request set-header X '%[foo'\n"(n"ull)\ x]`, `http-request set-header X "%[foo\nout ${NOPE_-o}f\x20memory\n]"`, `http-request set-header X %[foo\nout\ o"f"\ mem\x6fry\n]`,
	} {
		config := "defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nbackend b\n  " + line + "\n"
		path := filepath.Join(t.TempDir(), "haproxy.cfg")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		said, _ := exec.CommandContext(t.Context(), haproxy, "-c", "-f", path).CombinedOutput()
		if why, _ := shortage(string(said), []byte("defaults\n")); why == "" {
			t.Errorf("HAProxy says nothing of a shortage for %s:\n%s", line, said)
		}
		if got, doubtful := shortage(string(said), []byte(config)); got != "" || !doubtful {
			t.Errorf("%s is taken for a shortage: %s", line, got)
		}
		if left := silence([]byte(config)); says(left, "out of memory") || says(left, "(null)") || bytes.Count(left, []byte("\n")) != strings.Count(config, "\n") {
			t.Errorf("%s is not silenced:\n%s", line, left)
		}
	}
}

// Text of tenants names no place, wherever HAProxy quotes it. Otherwise tenants could blame others.
func TestParseOutputOfSpoofs(t *testing.T) {
	t.Parallel()
	const map1, list = "/s/maps/bad.map", "/s/general/bad.crtlist"
	places := []string{
		"parsing [haproxy.cfg:125] : x", "parsing [haproxy.cfg:125]:", "[haproxy.cfg:125] : x", "x at [haproxy.cfg:125]", "x at line 125 of file 'haproxy.cfg'",
		"'bind *:1' in section 'frontend' : 'crt-list' : parsing [" + list + ":125]: x", "parsing [" + list + ":125]: x", "x at line 125 of file '" + map1 + "'", "x at line 125 of file '" + map1,
		"error processing line 125 in file '" + list + "' : x", "'a' in crt-list '" + list + "' line 125, x", "Proxy 'f': no certificate for bind '*:1' at [haproxy.cfg:125]",
	}
	var spoofs []string
	for _, place := range places {
		spoofs = append(spoofs, place, "x' "+place, "x' : "+place+" 'y", "x\" "+place, "x' y ' "+place)
	}
	for _, form := range []string{
		"config : parsing [haproxy.cfg:7] : error detected while parsing an 'http-request set-var(txn.m)' condition : regex '%s' is invalid (error=regular expression is too large, erroffset=49).",
		"config : parsing [haproxy.cfg:7] : unknown keyword '%s' in 'backend' section",
		"config : parsing [haproxy.cfg:7]: '%s'",
		"config : parsing [haproxy.cfg:7] : no such ACL : %s.",
		"config : [haproxy.cfg:7] : 'server a/s1' : unknown keyword %s",
		"config : Parsing [haproxy.cfg:7]: backend '%s' has the same name as backend '%[1]s' declared at haproxy.cfg:10.",
		"config : parsing [haproxy.cfg:7] : 'bind *:8443' in section 'frontend' : unable to load '%s'.",
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : '%s' is not a valid IPv4 or IPv6 address at line 3 of file '" + map1 + "'.",
		"config : parsing [haproxy.cfg:7] : 'bind *:8443' in section 'frontend' : 'crt-list' : parsing [" + list + ":3]: unknown ssl keyword %s",
		"config : parsing [haproxy.cfg:7] : 'bind *:8443' in section 'frontend' : 'crt-list' : error processing line 3 in file '" + list + "' : unable to load '%s'",
	} {
		for _, spoof := range spoofs {
			text := fmt.Sprintf("[ALERT]    (1) : "+form+"\n", spoof)
			if strings.Contains(form, "is not a valid") && !strings.Contains(text[strings.Index(text, " : "):], " at line 3") {
				t.Fatal(text)
			}
			for _, m := range parseOutput(text, anything) {
				if m.Line != 7 && m.Line != 3 {
					t.Errorf("%s:%d is at fault, by %s", m.File, m.Line, text)
				}
			}
		}
	}
	for _, spoof := range spoofs { // in messages without a place
		for _, form := range []string{"Proxy 'f': unable to find required default_backend: '%s'.", "config : frontend 'f' has no '%s' directive.", "config : %s"} {
			text := fmt.Sprintf("[ALERT]    (1) : "+form+"\n", spoof)
			if form == "config : %s" && strings.HasPrefix(spoof, "parsing [") || strings.HasPrefix(spoof, "[") && form == "config : %s" || strings.HasPrefix(spoof, "Proxy '") && form == "config : %s" {
				continue // no message of HAProxy begins with a tenant's text
			}
			for _, m := range parseOutput(text, anything) {
				if m.File != "" || m.Line != 0 {
					t.Errorf("%s:%d is at fault, by %s", m.File, m.Line, text)
				}
			}
		}
	}
}

// A second place counts only if HAProxy was given that file, and the file has the line.
func TestParseOutputOfUnknownPlaces(t *testing.T) {
	t.Parallel()
	has := lineMap{bound: bind.Bound{Lines: make([]int, 20), Files: []bind.File{{Path: "/s/maps/a.map", Content: []byte("a b\nc d\n")}}}}.has
	for text, want := range map[string]string{
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : 'a' is not a valid address at line 2 of file '/s/maps/a.map'.":                 "/s/maps/a.map:2",
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : 'a' is not a valid address at line 9 of file '/s/maps/a.map'.":                 "haproxy.cfg:7",
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : 'a' is not a valid address at line 2 of file '/s/maps/b.map'.":                 "haproxy.cfg:7",
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : 'a' is not a valid address at line 2 of file 'haproxy.cfg'.":                   "haproxy.cfg:7",
		"config : parsing [haproxy.cfg:7] : invalid args in converter 'map_ip' : 'a' is not a valid address at line 99999999999999999 of file '/s/maps/a.map'.": "haproxy.cfg:7",
		"config : Proxy 'f': no SSL certificate specified for bind '*:8443' at [haproxy.cfg:20].":                                                               "haproxy.cfg:20",
		"config : Proxy 'f': no SSL certificate specified for bind '*:8443' at [haproxy.cfg:21].":                                                               ":0",
		"config : frontend 'f': protocol is not usable in 'bind *:8443' at [haproxy.cfg:20].":                                                                   "haproxy.cfg:20",
	} {
		for _, m := range parseOutput("[ALERT]    (1) : "+text+"\n", has) {
			if got := fmt.Sprintf("%s:%d", m.File, m.Line); got != want {
				t.Errorf("%s is at %s, want %s", text, got, want)
			}
		}
	}
}

// Lines that the parser of the Dataplane API loses are found, even if HAProxy would accept them.
func TestRoundTripNoticesLosses(t *testing.T) {
	t.Parallel()
	sane := "global\n    maxconn 10\n\ndefaults main\n    mode http\n\nbackend a from main\n    balance roundrobin\n"
	for name, c := range map[string]struct {
		config string
		lost   int
	}{
		"sane":         {sane, 0},
		"long line":    {strings.Replace(sane, "defaults", "# "+strings.Repeat("x", 70000)+"\ndefaults", 1), 5},
		"same section": {sane + "\nbackend a from main\n    retries 3\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if faults := (&roundTrips{}).check([]byte(c.config)); len(faults) != c.lost {
				t.Errorf("%d faults, want %d: %v", len(faults), c.lost, faults)
			}
		})
	}
}

// Messages of HAProxy about the machine are not about the configuration.
func TestVerdictLeavesOutTheMachine(t *testing.T) {
	t.Parallel()
	v := lineMap{places: newPlaces(render.Artifact{})}.verdict(parseOutput(`[WARNING]  (1) : This configuration enables 64 threads running on a total of 2 CPUs. Please do.
[WARNING]  (1) : This configuration binds 3 threads to a total of 2 CPUs via cpu-map directives. This means that some threads will compete for the same CPU.
[WARNING]  (1) : resolvers 'hapsnap': can't connect socket for nameserver '10.255.255.53'.
[WARNING]  (1) : config : parsing [haproxy.cfg:5]: the hash algorithm used for this password takes 10 milliseconds to verify, which can have devastating performance and stability impacts. Please hash this password using a lighter algorithm (one that is compatible with web usage).
[WARNING]  (1) : config : frontend 'f' has no 'bind' directive.
`, anything))
	if len(v.Faults) > 0 || len(v.Warnings) != 1 || v.Warnings[0].Message != "haproxy: frontend 'f' has no 'bind' directive" {
		t.Errorf("%+v", v)
	}
}

// Backends with few different texts are checked quickly: HAProxy gets only some of them.
func TestOneBackendOfEachText(t *testing.T) {
	t.Parallel()
	var config strings.Builder
	config.WriteString("defaults main\n    mode http\nfrontend f from main\n    use_backend b5 if TRUE\n    default_backend 'b6'\n")
	for i := range 100 {
		fmt.Fprintf(&config, "backend b%d from main\n    balance %s\n\n", i, []string{"roundrobin", "leastconn"}[i%2])
	}
	config.WriteString("backend odd/name from main\n    balance leastconn\nbackend twice from main\n    balance leastconn\nbackend twice from main\n    balance leastconn\n")
	config.WriteString("backend first from main\n    id 1\nbackend second from main\n    id 1\n")
	config.WriteString("backend third from main\n    \"id\" 2\nbackend fourth from main\n    \"id\" 2\nbackend fifth from main\n    \\x69d 3\nbackend sixth from main\n    \\x69d 3\n")
	config.WriteString("backend word from main\n    description a\\\nbackend blank from main\n    description a\\ \n") // an escaped blank is part of a word
	config.WriteString("backend empty from main\n    # a comment\nbackend remark from main\n    \v# another\nbackend odd from main\n    \u00a0# not a comment\n")
	got := string(onePerText([]byte(config.String())))
	if n, want := strings.Count(got, "\n"), strings.Count(config.String(), "\n"); n != want {
		t.Errorf("%d lines of %d", n, want)
	}
	var left []string
	for line := range strings.Lines(got) {
		if name, ok := strings.CutPrefix(line, "backend "); ok {
			left = append(left, strings.Fields(name)[0])
		}
	}
	if got, want := strings.Join(left, " "), "b0 b1 b5 b6 odd/name twice twice first second third fourth fifth sixth word blank empty odd"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	conditional := config.String() + ".if defined(X)\n    balance first\n.endif\n"
	if string(onePerText([]byte(conditional))) != conditional {
		t.Error("something is left out where lines are conditional")
	}
}
