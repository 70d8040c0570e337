package fleet

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata:\n  name: edge\nspec:\n"

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRead(t *testing.T) {
	file := write(t, head+`  rollout:
    waves: ["2", "50%"]
    soak: 1m30s
  instances:
  - {name: b, url: "http://127.0.0.1:5556", username: u, passwordFile: b.password}
  - name: a
    url: https://127.0.0.1:5555
    username: u
    password: secret
    zone: east
    directories: {maps: /m, certificates: /c/, general: /g}
`)
	passwords := filepath.Join(filepath.Dir(file), "b.password")
	if err := os.WriteFile(passwords, []byte("hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	soak := 90 * time.Second
	want := Fleet{
		Name:    "edge",
		Rollout: Rollout{Waves: []rollout.Size{{Count: 2}, {Percent: 50}}, Soak: &soak},
		Instances: []Instance{
			{Name: "a", URL: "https://127.0.0.1:5555", Username: "u", Password: "secret", Zone: "east", Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"}},
			{Name: "b", URL: "http://127.0.0.1:5556", Username: "u", Password: "hidden", Layout: bind.Layout{Maps: DefaultMaps, Certificates: DefaultCertificates, General: DefaultGeneral}},
		},
		Files: []string{file, passwords},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read otherwise (-want +got):\n%s", diff)
	}
}

func TestReadOfBudgetAndBlackouts(t *testing.T) {
	got, err := Read(write(t, head+`  rollout:
    budget: {perMinute: 30, burst: 5, oldWorkers: 4, within: 5m}
    gate: {statistics: false, maxErrors: 0.5%, cannotTell: hold, ignoreFrontends: []}
    blackouts:
    - {days: [Fri, sat], from: "18:00", to: "8:30", timeZone: Europe/Berlin}
    - {from: "00:00", to: "24:00"}
  instances: [{name: a, url: 'http://x'}]
`))
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := rollout.DefaultPolicy()
	want.Budget = rollout.Budget{PerMinute: 30, Burst: 5, Reloads: 30, Within: 5 * time.Minute, OldWorkers: 4, HardStopAfter: 30 * time.Minute}
	want.Gate.Off, want.Gate.Errors, want.Gate.CannotTell, want.Gate.Ignore = true, 0.005, rollout.HoldOn, []string{}
	want.Blackouts = []rollout.Blackout{
		{Days: []time.Weekday{time.Friday, time.Saturday}, From: 18 * time.Hour, To: 8*time.Hour + 30*time.Minute, Zone: berlin},
		{From: 0, To: 24 * time.Hour, Zone: time.UTC},
	}
	same := cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() })
	if diff := cmp.Diff(want, got.Rollout.Apply(rollout.DefaultPolicy()), same); diff != "" {
		t.Errorf("read otherwise (-want +got):\n%s", diff)
	}
}

func TestReadSaysWhereAFaultIs(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"unknown field":     {head + "  instances: []\n  rolout: {}\n", ":7:3: Fleet: spec.rolout is not a known field"},
		"no instances":      {head + "  instances: []\n", ":5:1: Fleet: there are no instances"},
		"another kind":      {"apiVersion: v1\nkind: List2\nmetadata: {name: x}\n", ":2:7: Fleet: this is v1 List2"},
		"two objects":       {head + "  instances: []\n---\n" + strings.Replace(head, "edge", "core", 1) + "  instances: []\n", ": Fleet: there are 2 objects"},
		"url":               {head + "  instances:\n  - {name: a, url: 'ftp://x'}\n", ":7:20: Fleet: instance a has no usable url"},
		"credentials":       {head + "  instances:\n  - {name: a, url: 'http://u:p@x'}\n", ":7:20: Fleet: instance a has no usable url"},
		"no name":           {head + "  instances:\n  - {url: 'http://x'}\n", ":7:5: Fleet: an instance has no name"},
		"twice":             {head + "  instances:\n  - {name: a, url: 'http://x'}\n  - {name: a, url: 'http://y'}\n", ":8:12: Fleet: instance a is there twice"},
		"wave":              {head + "  rollout: {waves: [1%, none]}\n  instances: []\n", `:6:25: Fleet: "none" is not a size of a wave`},
		"smaller wave":      {head + "  rollout: {waves: ['25%', '1', '10%']}\n  instances: []\n", ":6:33: Fleet: no wave has the size 10% after 25%"},
		"same wave":         {head + "  rollout: {waves: ['1', '1']}\n  instances: []\n", ":6:26: Fleet: no wave has the size 1 after 1"},
		"wave after all":    {head + "  rollout: {waves: ['100%', zone]}\n  instances: []\n", ":6:29: Fleet: no wave has the size zone after 100%"},
		"url twice":         {head + "  instances:\n  - {name: a, url: 'http://x:80'}\n  - {name: b, url: 'http://X./'}\n", ":8:20: Fleet: instance b has the url of instance a"},
		"budget":            {head + "  rollout: {budget: {perMinute: -1}}\n  instances: []\n", ":6:33: Fleet: perMinute must be 0 or more"},
		"burst":             {head + "  rollout: {budget: {burst: 0}}\n  instances: []\n", ":6:29: Fleet: burst must be 1 or more"},
		"within":            {head + "  rollout: {budget: {within: 0s}}\n  instances: []\n", ":6:30: Fleet: within must be more than nothing"},
		"day":               {head + "  rollout: {blackouts: [{days: [fry], from: '18:00', to: '8:00'}]}\n  instances: []\n", `:6:33: Fleet: "fry" is no day of the week`},
		"time of day":       {head + "  rollout: {blackouts: [{from: '25:00', to: '8:00'}]}\n  instances: []\n", `:6:32: Fleet: "25:00" is no time of day`},
		"no time of day":    {head + "  rollout: {blackouts: [{from: '18:00'}]}\n  instances: []\n", `:6:25: Fleet: "" is no time of day`},
		"time zone":         {head + "  rollout: {blackouts: [{from: '18:00', to: '8:00', timeZone: Europe/Bern}]}\n  instances: []\n", `:6:63: Fleet: "Europe/Bern" is no time zone`},
		"least requests":    {head + "  rollout: {gate: {minRequests: 0}}\n  instances: []\n", ":6:33: Fleet: minRequests must be 1 or more"},
		"share":             {head + "  rollout: {gate: {maxErrors: 101%}}\n  instances: []\n", `:6:31: Fleet: "101%" is no share`},
		"share of nothing":  {head + "  rollout: {gate: {minConnections: '5'}}\n  instances: []\n", `:6:36: Fleet: "5" is no share`},
		"times":             {head + "  rollout: {gate: {maxTimes: 0.5}}\n  instances: []\n", ":6:30: Fleet: maxTimes must be 1 or more"},
		"cannot tell":       {head + "  rollout: {gate: {cannotTell: guess}}\n  instances: []\n", `:6:32: Fleet: "guess" does not say what to do when the gate cannot tell`},
		"unknown limit":     {head + "  rollout: {budget: {perHour: 1}}\n  instances: []\n", ":6:22: Fleet: spec.rollout.budget.perHour is not a known field"},
		"soak":              {head + "  rollout: {soak: soon}\n  instances: []\n", ":6:19: Fleet: spec.rollout.soak"},
		"missing password":  {head + "  instances:\n  - {name: a, url: 'http://x', passwordFile: none}\n", ":7:46: Fleet: instance a: read none: no such file or directory"},
		"two passwords":     {head + "  instances:\n  - {name: a, url: 'http://x', password: p, passwordFile: none}\n", "has both password and passwordFile"},
		"relative folder":   {head + "  instances:\n  - {name: a, url: 'http://x', directories: {maps: maps}}\n", `"maps" is not an absolute directory`},
		"not YAML":          {"spec: [\n", ": Fleet: "},
		"tls without https": {head + "  instances:\n  - {name: a, url: 'http://x', tls: {serverName: edge}}\n", ":7:32: Fleet: instance a has tls, and a url without it"},
		"missing authority": {head + "  instances:\n  - {name: a, url: 'https://x', tls: {caFile: none}}\n", ":7:47: Fleet: instance a: read none: no such file or directory"},
		"half a pair":       {head + "  instances:\n  - {name: a, url: 'https://x', tls: {certificateFile: fleet.yaml}}\n", ":7:33: Fleet: instance a has only one of certificateFile and keyFile"},
		"no certificate":    {head + "  instances:\n  - {name: a, url: 'https://x', tls: {caFile: fleet.yaml}}\n", ":7:33: Fleet: instance a: the authorities hold no certificate in PEM"},
		"no pair":           {head + "  instances:\n  - {name: a, url: 'https://x', tls: {certificateFile: fleet.yaml, keyFile: fleet.yaml}}\n", "instance a: the client certificate cannot be used"},
		"no verification":   {head + "  instances:\n  - {name: a, url: 'https://x', tls: {insecureSkipVerify: true}}\n", "tls.insecureSkipVerify is not a known field"},
		"password as value": {head + "  instances:\n  - {name: a, url: 'http://x', password: {secret: 1}}\n", ": Fleet: spec.instances[0].password"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := write(t, test.text)
			_, err := Read(file)
			var invalid InvalidError
			if !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), file) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "document") {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestReadOfNothingIsNoFleet(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "none.yaml"))
	var invalid InvalidError
	if err == nil || errors.As(err, &invalid) {
		t.Errorf("error is %v, want one that says that nothing is known", err)
	}
}

// A password file that is empty or missing harms only its own instance, which keeps the password that was in it. An instance
// that is new is in the fleet, and has nothing to be contacted with. If no file is there, no fleet is read.
func TestReadAgainKeepsPasswords(t *testing.T) {
	entries := "  - {name: a, url: 'http://x', username: u, passwordFile: a}\n  - {name: b, url: 'http://y', passwordFile: b}\n"
	file := write(t, head+"  instances:\n"+entries)
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(names ...string) {
		for _, name := range names {
			if err := os.Remove(filepath.Join(filepath.Dir(file), name)); err != nil {
				t.Error(err)
			}
		}
	}
	var known []Instance
	told := func(f Fleet) string {
		var out []string
		for _, i := range f.Instances {
			out = append(out, fmt.Sprintf("%s=%s%s", i.Name, i.Password, i.Unknown))
		}
		return strings.Join(out, " ")
	}
	for _, step := range []struct {
		does           func()
		fleet, problem string
	}{
		{func() {}, "", "instance a: read a: no such file or directory"},
		{func() { put("a", "") }, "", ":7:59: Fleet: instance a: a holds no password"},
		{func() { put("a", "hidden\n") }, "a=hidden b=read b: no such file or directory", ":8:46: Fleet: instance b: read b: no such file or directory"},
		{func() { put("b", "other") }, "a=hidden b=other", ""},
		{func() { put("a", " \n") }, "a=hidden b=other", "instance a: a holds no password"},
		{func() { put("b", "changed") }, "a=hidden b=changed", "instance a: a holds no password"},
		{func() {
			put("fleet.yaml", head+"  instances:\n"+entries+"  - {name: c, url: 'http://z', passwordFile: c}\n")
		}, "a=hidden b=changed c=read c: no such file or directory", "instance c"},
		{func() { remove("a", "b") }, "a=hidden b=changed c=read c: no such file or directory", "instance b"},
		{func() { put("fleet.yaml", head+"  instances: [{name: d, url: 'http://d', passwordFile: d}]\n") }, "", "instance d"},
		{func() { put("fleet.yaml", "") }, "", "there are 0 objects"},
	} {
		step.does()
		f, err := ReadAgain(file, known)
		if told(f) != step.fleet || (err == nil) != (step.problem == "") || err != nil && !strings.Contains(err.Error(), step.problem) {
			t.Errorf("got %q and %v, want %q and %q", told(f), err, step.fleet, step.problem)
		}
		if f.Name != "" {
			known = f.Instances
		}
	}
}

// In place of what is missing an instance keeps what it was known with, under the same URL. The rest counts as it is now.
// If nothing is known in its place, nothing is used by half, so that a client can be made and the instance is in the fleet.
func TestReadAgainKeepsOnlyWhatIsMissing(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	server.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	file := write(t, "")
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var known []Instance
	for _, step := range []struct{ instance, password, authority, want string }{
		{"url: 'https://x', username: u, passwordFile: p, tls: {caFile: ca}", "one", "no PEM", "u one  false the authorities hold no certificate in PEM"},
		{"url: 'https://x', username: u, passwordFile: p, tls: {caFile: ca, serverName: edge}", "one", authority, "u one edge true "},
		{"url: 'https://x', username: v, passwordFile: p, tls: {serverName: other}", "", authority, "u one other false "},
		{"url: 'https://x', username: u, passwordFile: p, tls: {caFile: ca, serverName: edge}", "one", authority, "u one edge true "},
		{"url: 'https://x', username: w, passwordFile: p, tls: {caFile: ca, serverName: edge}", "two", " \n", "w two edge true "},
		{"url: 'https://x', username: w, passwordFile: p, tls: {caFile: ca, serverName: edge}", "", "no PEM", "w two edge true "},
		{"url: 'https://y', username: w, passwordFile: p", "", authority, "w   false p holds no password"},
		{"url: 'https://y', username: w, passwordFile: p, tls: {caFile: ca}", "three", "no PEM", "w three  false the authorities hold no certificate in PEM"},
		{"url: 'https://y', username: w, passwordFile: p, tls: {caFile: ca}", "three", "", "w three  false ca is empty"},
		{"url: 'https://y', username: w, passwordFile: p, tls: {certificateFile: ca, keyFile: none}", "three", authority, "w three  false read none: no such file or directory"},
		{"url: 'https://y', username: w, passwordFile: p, tls: {caFile: ca}", "three", authority, "w three  true "},
	} {
		put("fleet.yaml", head+"  instances:\n  - {name: b, url: 'http://b'}\n  - {name: a, "+step.instance+"}\n")
		put("p", step.password)
		put("ca", step.authority)
		f, err := ReadAgain(file, known)
		if len(f.Instances) != 2 {
			t.Fatalf("%s: %d instances, %v", step.instance, len(f.Instances), err)
		}
		i := f.Instances[0]
		if got := fmt.Sprint(i.Username, " ", i.Password, " ", i.TLS.ServerName, " ", i.TLS.CA == authority, " ", i.Unknown); got != step.want {
			t.Errorf("%s: got %q, want %q: %v", step.instance, got, step.want, err)
		}
		if _, err := dataplane.New(i.Access()); err != nil {
			t.Errorf("%s: %v", step.instance, err)
		}
		known = f.Instances
	}
}
