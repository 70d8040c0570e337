package validate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/race"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// The Dataplane API keeps the lines that Bind writes for users and values.
func TestRoundTripKeepsSecrets(t *testing.T) {
	t.Parallel()
	auth, keys := snapshots.SecretName{Namespace: "shop", Name: "auth"}, snapshots.SecretName{Namespace: "shop", Name: "keys"}
	config := "userlist u\n    #hapsnap users shop/auth\n"
	live := bind.Live{
		Users: map[snapshots.SecretName][]htpasswd.User{auth: {
			{Name: "a", Hash: "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"},
			{Name: "b@shop.example", Hash: "$5$rounds=1000$abcdefgh$ue35C0ITbth1b5zVUjrjm2mMmsmMKiodEeH2UV/Hq10"},
			{Name: "c+d=e~f!g;{h}(i),%j", Hash: "$6$abcdefgh$yIZAF3gQPvtKZO/9qOJKffAKKbtS3ef3qmwyugk4uWVjX8YZf/GV3A8SkFxEPY0T56CcilGrHKLffBsp6dLMG."},
			{Name: "groups", Hash: "$y$j9T$abcdefghijklmnop$0Hi8KsZH/hAMRN9Bam6ce3nmi5QAIz3R/KeaXG/c7p9"},
			{Name: "password", Hash: "$1$abcdefgh$y6iHhJNbuC0xpbk0w9pm80"},
			{Name: "user", Hash: "abhfCpXqd4GrI"},
		}},
		Values: map[bind.SecretKey]string{},
	}
	for key, value := range map[string]string{
		"plain": "s3cret", "base64": "YWJj+ZGVm/Zw==", "spaces": "a  b   c ", "quotes": `it's "so" 'a' ''`, "signs": `#1 $HOME ${HOME} \n \\ {x} (y) , ; | &`, "letters": "äöü",
	} {
		live.Values[bind.SecretKey{Secret: keys, Key: key}] = value
		config += "backend " + key + "\n    cookie x dynamic indirect nocache insert\n    dynamic-cookie-key hapsnap:secret/shop/keys/" + key +
			"\n    http-request set-header x hapsnap:secret/shop/keys/" + key + " if { req.hdr(y) -m str hapsnap:secret/shop/keys/" + key + " }\n"
	}
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Number(1, snapshots.ID{})
	bound, err := bind.Bind(s, bind.Inputs{Live: live, Layout: LayoutIn("/x")})
	if err != nil || len(bound.Missing) > 0 {
		t.Fatalf("%v, missing %v", err, bound.Missing)
	}
	if faults := (&roundTrips{}).check(bound.Config); len(faults) > 0 {
		t.Errorf("faults %+v in\n%s", faults, bound.Config)
	}
}

// bodyLines are lines of backends. The Dataplane API returns some and loses others, and for some the text is
// checked as a whole.
var bodyLines = []string{
	"    mode http", "    balance roundrobin", "    balance roundrobin", "    option httpchk", "    timeout server 5s", "    timeout server 6s",
	"    # hapsnap servers shop/web:http weight=3", "    # hapsnap servers shop/api", "    # it's", "    # a  b", "#outer", "", "    mode http # behind",
	"    server s1 192.0.2.1:1 disabled", "    server s1 192.0.2.1:1 weight 3 check disabled", "    default-server check inter 5s",
	"    acl x src 10.0.0.0/8", "    http-request deny if x", "    cookie a insert dynamic", "    cookie a dynamic insert",
	"    http-request set-header x 'a b' if { path /x }", "    stick-table type ip size 1m expire 5s store http_req_rate(5s)",
	"    http-check expect status 200-399", "    no option httpclose", "    retries 3", "    nonsense of nobody's", "    http-request nonsense",
	"    http-request set-var(req) str(1)", "    http-response set-var(x) 1 if", // the parser panics for the first line
	"    bind :1", "  \tmode tcp", "    ", "    'mode' http", "    frontend inner", "outer line", "    default_backend x", "    acl 'x y' src 1.2.3.4",
}

// backendsOf writes a configuration with random sections.
func backendsOf(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString("global\n    maxconn 10\n\ndefaults main\n    mode http\n\nfrontend web from main\n    bind :80\n")
	most := len(bodyLines) - r.IntN(len(bodyLines)-5) // the harmless lines are more frequent
	for i := range 1 + r.IntN(6) {
		b.WriteString("\n" + []string{"backend b%d", "backend b%d from main", "backend b%d # x", "listen l%d", "userlist u%d"}[min(r.IntN(12), 4)])
		text := b.String()
		b.Reset()
		fmt.Fprintf(&b, text+"\n", i)
		for range r.IntN(6) {
			b.WriteString(bodyLines[r.IntN(most)] + "\n")
		}
	}
	b.WriteString("# hapsnap end x\n")
	return b.String()
}

// Backends that are checked alone, under other names and with a memory, have the same findings as in the whole.
func TestBackendsAloneAreAsTheWhole(t *testing.T) {
	t.Parallel()
	var trips roundTrips
	apart, faulty := 0, 0
	for seed := range uint64(1500) {
		config := []byte(backendsOf(rand.New(rand.NewPCG(seed, 1))))
		if _, ok := splitBackends(config); ok {
			apart++
		}
		whole := checkWhole(config)
		for range 2 {
			parts := trips.check(config)
			if a, b := lostOf(config, whole), lostOf(config, parts); !slices.Equal(a, b) {
				t.Fatalf("seed %d: as a whole lost\n%q, in parts\n%q, of\n%s", seed, a, b, config)
			}
		}
		if len(whole) > 0 {
			faulty++
		}
	}
	if apart < 300 || faulty < 300 {
		t.Errorf("%d were taken apart and %d have faults: the test is worth little", apart, faulty)
	}
}

// lostOf returns the texts of lost lines, sorted. If several sections have the same line, the whole check only
// counts it.
func lostOf(config []byte, faults []fault) []string {
	lines := strings.Split(string(config), "\n")
	var out []string
	for _, f := range faults {
		out = append(out, normal(lines[f.line-1]))
	}
	slices.Sort(out)
	return out
}

// A lost line has its number, even if only its section was checked again.
func TestLostLinesHaveTheirNumbers(t *testing.T) {
	t.Parallel()
	var trips roundTrips
	head := "global\n    maxconn 10\n\nbackend a from main\n    mode http\n"
	for _, c := range []struct {
		text string
		want int
	}{
		{head + "\nbackend b from main\n    # hapsnap servers shop/b\n    balance roundrobin\n    balance roundrobin\n", 10},
		{head + "\n\nbackend c from main\n    # hapsnap servers shop/c\n    balance roundrobin\n    balance roundrobin\n", 11},
		{"global\n    maxconn 10\n    maxconn 10\n\nbackend a\n    mode http\n", 3},
	} {
		if faults := trips.check([]byte(c.text)); len(faults) != 1 || faults[0].line != c.want {
			t.Errorf("%+v, want line %d in\n%s", faults, c.want, c.text)
		}
	}
}

// A memo forgets what is not used, and keeps what is.
func TestMemoIsBounded(t *testing.T) {
	t.Parallel()
	var m verdictMemo
	key := func(i int) textKey { return textKey{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range 3 * mostVerdicts {
		m.put(key(i), []int{i})
		if v, ok := m.get(key(0)); !ok || v[0] != 0 {
			t.Fatalf("what is asked for again and again is forgotten after %d", i)
		}
	}
	if n := len(m.young) + len(m.old); n > 2*mostVerdicts {
		t.Errorf("%d verdicts are kept", n)
	}
	if _, ok := m.get(key(1)); ok {
		t.Error("nothing is forgotten")
	}
}

// Backends are parts of haproxy.cfg, and not copied: only one of each text is asked about.
func TestBackendsAreNotCopied(t *testing.T) {
	const n = 1000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "backend shop_web-%d\n    # Service shop/web-%d\n    balance leastconn\n    timeout server 45s\n    #hapsnap servers shop/web-%d\n%s\n", i, i, i, strings.Repeat("    http-request deny\n", 50))
	}
	config := []byte(b.String())
	parts, ok := splitBackends(config)
	if !ok || len(parts.backends) != n || parts.backends[0].key == parts.backends[1].key || len(parts.backends[7].lines) < 1000 {
		t.Fatalf("%d backends, %t", len(parts.backends), ok)
	}
	if at := bytes.Index(config, parts.backends[7].lines); &parts.backends[7].lines[0] != &config[at] {
		t.Error("the lines of a backend are a copy")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	splitBackends(config)
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 2000 && !race.Enabled { // the race detector has regular expressions take new memory each time
		t.Errorf("%d bytes are allocated for a backend of %d", each, len(config)/n)
	}
}
