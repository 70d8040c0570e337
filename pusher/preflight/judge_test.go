package preflight

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// well are the facts of an instance without problems.
func well() Facts {
	return Facts{
		URL: "http://10.0.0.1:5555", Username: "hapsnap", Password: "secret", APIVersion: "v3.2.5 1a2b3c4",
		Layout:  bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"},
		Process: dataplane.Process{Socket: "/run/master.sock", Version: "3.2.0-1a2b3c4", Sockets: 20000, Descriptors: 20000},
		Config:  []byte("global\n    stats socket /run/stats.sock level admin\n"),
		Wrote:   true, Storages: map[dataplane.Storage]StorageFacts{
			dataplane.Maps:         {Listed: []dataplane.File{{Path: "/m/a.map"}}},
			dataplane.Certificates: {Listed: []dataplane.File{{Path: "/c/a.pem"}}},
			dataplane.General:      {Listed: []dataplane.File{{Path: "/g/a.lst"}}},
		},
	}
}

func TestJudge(t *testing.T) {
	boom := errors.New("boom")
	at := time.Unix(1_000_000, 0)
	for name, tt := range map[string]struct {
		change func(*Facts)
		want   string // the check of the only finding; "" for none
		says   string
		warns  bool
	}{
		"all is well":                      {func(*Facts) {}, "", "", false},
		"a version without a suffix":       {func(f *Facts) { f.Process.Version = "3.2.0" }, "reloads", "3.2.0-1a2b3c4", true},
		"a version of development":         {func(f *Facts) { f.Process.Version = "3.5-dev5-50872da" }, "", "", false},
		"a version of a distribution":      {func(f *Facts) { f.Process.Version = "3.0.11-1+deb13u1" }, "", "", false},
		"a version that is not told":       {func(f *Facts) { f.Process.Version = "" }, "", "", false},
		"a master that says little":        {func(f *Facts) { f.Process.Version = "2.6.12-1+deb12u4" }, "reloads", "2.7 or later", true},
		"the stats socket in its place":    {func(f *Facts) { f.Process.Socket = "/run/stats.sock" }, "master socket", "master_runtime", false},
		"no stats socket, and none needed": {func(f *Facts) { f.Config = []byte("global\n") }, "", "", false},
		"a configuration that is not told": {func(f *Facts) { f.Config, f.ConfigErr = nil, boom }, "configuration", "boom", false},
		"fewer descriptors than needed":    {func(f *Facts) { f.Process.Descriptors = 1024 }, "limits", "LimitNOFILE", false},
		"few descriptors":                  {func(f *Facts) { f.Process.Sockets, f.Process.Descriptors = 1000, 1024 }, "limits", "1024", true},
		"limits that are not told":         {func(f *Facts) { f.Process.Sockets, f.Process.Descriptors = 0, 0 }, "", "", false},
		"a clock that is ahead":            {func(f *Facts) { f.Skew = time.Hour }, "clock", "1h0m0s ahead of", true},
		"a clock that is behind":           {func(f *Facts) { f.Skew = -time.Minute }, "clock", "1m0s behind", true},
		"a clock that is about right":      {func(f *Facts) { f.Skew = 5 * time.Second }, "", "", false},
		"statistics that are not told":     {func(f *Facts) { f.Statistics = boom }, "statistics", "gate.statistics: false", true},
		"no exporter":                      {func(f *Facts) { f.Exporter = boom }, "metrics", "USE_PROMEX", true},
		"HAProxy sees no files":            {func(f *Facts) { f.Validated, f.Exporter = boom, boom }, "haproxy", "haproxy_bin", false},
		"no space":                         {func(f *Facts) { f.storage(dataplane.Maps, StorageFacts{Upload: boom}) }, "disk", "maps_dir", false},
		"a file that stays":                {func(f *Facts) { f.storage(dataplane.General, StorageFacts{Delete: boom}) }, "disk", "delete files named", false},
		"no transaction":                   {func(f *Facts) { f.Transaction = boom }, "disk", "transaction_dir", false},
		"a directory that is not listed":   {func(f *Facts) { f.storage(dataplane.Maps, StorageFacts{List: boom, Upload: boom}) }, "directories", "maps_dir", false},
		"certificates elsewhere": {func(f *Facts) {
			f.Layout.Certificates = "/etc/haproxy/ssl"
			f.Validated = boom // an error is the right answer here
		}, "directories", "set directories: {certificates: /c}", false},
		"a reload that failed last": {func(f *Facts) {
			f.Reloads = []dataplane.Reload{{Status: dataplane.ReloadSucceeded, At: at}, {Status: dataplane.ReloadFailed, At: at.Add(time.Hour), Response: "a\nb\nc\nd"}}
		}, "reloads", "a\nb\nc\n…", true},
		"a reload that failed, and one after it": {func(f *Facts) {
			f.Reloads = []dataplane.Reload{{Status: dataplane.ReloadFailed, At: at}, {Status: dataplane.ReloadSucceeded, At: at.Add(time.Hour)}, {Status: dataplane.ReloadInProgress}}
		}, "", "", false},
		"a reload that reached nobody": {func(f *Facts) { f.Reloads = []dataplane.Reload{{Status: dataplane.ReloadFailed, At: at}} }, "reloads", "not reached", true},
		"many leftovers":               {func(f *Facts) { f.Transactions = make([]dataplane.Transaction, 20) }, "disk", "20 refused configurations", true},
		"transactions that are open": {func(f *Facts) {
			for range 20 {
				f.Transactions = append(f.Transactions, dataplane.Transaction{Status: "in_progress"})
			}
		}, "", "", false},
		"users in haproxy.cfg": {func(f *Facts) {
			f.Config = []byte("global\nuserlist controller\n  user hapsnap insecure-password secret\n")
		}, "users", "userlist controller", false},
		"an API that is too old": {func(f *Facts) { f.Supported, f.ProcessErr = dataplane.UnsupportedError{Message: "too old"}, boom }, "version", "too old", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := well()
			tt.change(&f)
			found := Judge(f)
			if tt.want == "" {
				if len(found) > 0 {
					t.Fatalf("found %v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Check != tt.want || found[0].Warning != tt.warns || !strings.Contains(found[0].String(), tt.says) {
				t.Errorf("found %+v, want %s with %q", found, tt.want, tt.says)
			}
		})
	}
}

// storage adds facts about a storage.
func (f *Facts) storage(s dataplane.Storage, more StorageFacts) {
	more.Listed = f.Storages[s].Listed
	f.Storages[s] = more
}

// The reasons why the pusher cannot reach an instance are distinguished, since they are fixed in different
// files.
func TestJudgeReached(t *testing.T) {
	for text, want := range map[string]string{
		"Get \"https://x\": http: server gave HTTP response to HTTPS client":                        "url http://",
		"Get \"http://x\": net/http: HTTP/1.x transport connection broken: malformed HTTP response": "url https://",
		"client sent an HTTP request to an HTTPS server":                                            "url https://",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority":          "tls.caFile",
		"remote error: tls: certificate required":                                                   "client certificate",
		"dial tcp 10.0.0.1:5555: connect: connection refused":                                       "listens at the host and port",
		"dial tcp: lookup edge-1: no such host":                                                     "listens at the host and port",
	} {
		f := well()
		f.Reached = errors.New(text)
		if found := Judge(f); len(found) != 1 || !strings.Contains(found[0].Hint, want) {
			t.Errorf("%s: found %+v, want %q", text, found, want)
		}
	}
}

func TestEndangeredUsers(t *testing.T) {
	for name, tt := range map[string]struct{ config, want string }{
		"none":                    {"global\n", ""},
		"the API's own list":      {"userlist controller\n  user hapsnap insecure-password secret\n", "controller"},
		"another name":            {"userlist dataplaneapi\n\tuser hapsnap insecure-password secret\n", "dataplaneapi"},
		"a hash tells nothing":    {"userlist controller\n  user hapsnap password $5$salt$hash\n", "controller"},
		"the default counts most": {"userlist a\n  user hapsnap password x\nuserlist controller\n  user hapsnap password x\n", "controller"},
		"another user":            {"userlist controller\n  user admin insecure-password secret\n", ""},
		"another password":        {"userlist controller\n  user hapsnap insecure-password other\n", ""},
		"a comment":               {"userlist controller\n  # user hapsnap insecure-password secret\n", ""},
		"another section":         {"userlist controller\n\nbackend b\n  user hapsnap insecure-password secret\n", ""},
		"not indented":            {"userlist controller\nuser hapsnap insecure-password secret\n", "controller"},
		"quoted":                  {"\"userlist\" 'controller' # ours\n  \"user\" hapsnap insecure-password \"secret\" # other\n", "controller"},
		"another, in quotes":      {"userlist controller\n  user hapsnap insecure-password \"an other\"\n", ""},
		"a word of a comment":     {"userlist # controller\n  user hapsnap password x\nuserlist u # x\nuser admin password x # hapsnap\n", ""},
		"a node of nobody":        {"backend b\n  node r000001-9f3ac01b2d_5f3c9a01\nuserlist controller\n  user hapsnap password x\n", "controller"},
		"an Ingress of ours":      {"global\n  node r000001-9f3ac01b2d_5f3c9a01\nuserlist controller\n  user hapsnap password x\n", ""},
	} {
		if got := endangeredUsers([]byte(tt.config), "hapsnap", "secret"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestStatsSockets(t *testing.T) {
	got := statsSockets([]byte("global\n  stats socket /a mode 600\n  stats socket unix@/b level admin\n  stats socket ipv4@127.0.0.1:9999 level admin\n  stats timeout 1s\n"))
	if len(got) != 3 || !got["/a"] || !got["/b"] {
		t.Errorf("found %v", got)
	}
	if got := statsSockets([]byte("'global'\n\"stats\" socket \"/run/a b\" # level admin\n")); len(got) != 1 || !got["/run/a b"] {
		t.Errorf("in quotes, found %v", got)
	}
}

func TestSkew(t *testing.T) {
	now := time.Unix(1_000_000, 500_000_000)
	for clock, want := range map[int64]time.Duration{
		1_000_000: 0, 999_999: -500 * time.Millisecond, // the time is read to the second
		1_000_100: 99500 * time.Millisecond, 999_900: -99500 * time.Millisecond,
	} {
		if got := skew(time.Unix(clock, 0), now, now); got != want {
			t.Errorf("a clock at %d is %s ahead, want %s", clock, got, want)
		}
	}
}
