package preflight_test

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// member returns an instance as a matching Fleet has it.
func member(i *dataplanetest.Instance) fleet.Instance {
	return fleet.Instance{
		Name: "edge", URL: i.URL(), Username: "admin", Password: "secret",
		Layout: bind.Layout{Maps: i.Dirs.Maps, Certificates: i.Dirs.Certificates, General: i.Dirs.General},
	}
}

// errorsOf returns the checks that found something wrong, without warnings.
func errorsOf(r preflight.Report) []string {
	var out []string
	for _, f := range r.Instances[0].Findings {
		if !f.Warning {
			out = append(out, f.Check)
		}
	}
	return slices.Compact(out)
}

// realAPI returns the real Dataplane API for the test. It is "" if there is none, or if it is a double.
func realAPI(api string) string {
	if api != "real" {
		return ""
	}
	program, _ := dataplanetest.Real(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	return program
}

// modern makes the API report a HAProxy that can be reloaded through the master socket, whatever runs.
const modern = "3.2.0-1a2b3c4"

func TestAnInstanceThatIsWell(t *testing.T) {
	t.Parallel()
	for api, options := range map[string]dataplanetest.Options{
		"3.2": {API: dataplanetest.V32, HAProxyVersion: modern}, "3.4": {API: dataplanetest.V34, HAProxyVersion: modern}, "real": {},
	} {
		if options.Program = realAPI(api); api == "real" && options.Program == "" {
			continue
		}
		i := dataplanetest.Start(t, options)
		pid, err := i.WorkerPID()
		if err != nil {
			t.Fatal(err)
		}
		report := preflight.Check(t.Context(), []fleet.Instance{member(i)}, time.Minute)
		if got := report.Instances[0]; !report.OK || len(got.Findings) > 0 || got.HAProxy == "" {
			t.Errorf("%s: %+v", api, report)
		}
		// The check left and changed nothing.
		for _, dir := range []string{i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General, i.Dirs.Transactions} {
			if files, err := filepath.Glob(filepath.Join(dir, "*.*")); err != nil || len(files) > 0 {
				t.Errorf("%s: left %v, %v", api, files, err)
			}
		}
		if after, err := i.WorkerPID(); err != nil || after != pid {
			t.Errorf("worker %d after %d, %v", after, pid, err)
		}
		if text, err := i.Config(); err != nil || !strings.Contains(text, "node bootstrap") || strings.Contains(text, "_version=2") {
			t.Errorf("the configuration is %s, %v", text, err)
		}
	}
}

//nolint:funlen // a table
func TestWhatIsWrongWithAnInstance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options dataplanetest.Options
		spoil   func(*testing.T, *dataplanetest.Instance, *fleet.Instance)
		want    string // the check that fails
		says    string
	}{
		"directories forgotten": {
			spoil: func(_ *testing.T, _ *dataplanetest.Instance, s *fleet.Instance) {
				s.Layout = bind.Layout{Maps: fleet.DefaultMaps, Certificates: fleet.DefaultCertificates, General: fleet.DefaultGeneral}
			},
			want: "directories", says: "set directories: {maps: ",
		},
		"one directory of another packaging": {
			options: dataplanetest.Options{Folders: dataplanetest.Folders{Certificates: "certs"}},
			spoil: func(_ *testing.T, i *dataplanetest.Instance, s *fleet.Instance) {
				s.Layout.Certificates = filepath.Join(filepath.Dir(i.Dirs.Certificates), "ssl")
			},
			want: "directories", says: "set directories: {certificates: ",
		},
		"a directory that is not there": {
			spoil: func(t *testing.T, i *dataplanetest.Instance, _ *fleet.Instance) {
				t.Helper()
				if err := os.Remove(i.Dirs.General); err != nil {
					t.Fatal(err)
				}
			},
			want: "directories", says: "general_storage_dir",
		},
		"users in haproxy.cfg": {
			options: dataplanetest.Options{UsersInConfig: true}, want: "users", says: "dies when it starts the next time",
		},
		"another password": {
			spoil: func(_ *testing.T, _ *dataplanetest.Instance, s *fleet.Instance) { s.Password = "other" },
			want:  "credentials", says: "user: in its dataplaneapi.yml",
		},
		"no password": {
			spoil: func(_ *testing.T, _ *dataplanetest.Instance, s *fleet.Instance) { s.Password = "" },
			want:  "credentials", says: "passwordFile",
		},
		"nobody listens": {
			spoil: func(_ *testing.T, i *dataplanetest.Instance, _ *fleet.Instance) { i.StopAPI() },
			want:  "reachable", says: "look whether the API runs",
		},
		"TLS where there is none": {
			spoil: func(_ *testing.T, _ *dataplanetest.Instance, s *fleet.Instance) {
				s.URL = strings.Replace(s.URL, "http:", "https:", 1)
			},
			want: "reachable", says: "make the url http://",
		},
		"an old API": {
			options: dataplanetest.Options{APIVersion: "v3.1.4 1a2b3c4"}, want: "version", says: "want 3.2 or a later 3",
		},
		"an old HAProxy": {
			options: dataplanetest.Options{HAProxyVersion: "2.4.22-1"}, want: "version", says: "want 2.6 or later",
		},
		"no HAProxy": {
			spoil: func(_ *testing.T, i *dataplanetest.Instance, _ *fleet.Instance) { i.KillHAProxy() },
			want:  "master socket", says: "-W -S SOCKET",
		},
		"a full disk": {
			spoil: func(_ *testing.T, i *dataplanetest.Instance, _ *fleet.Instance) { i.Inject(dataplanetest.DiskFull()) },
			want:  "disk", says: "no space left",
		},
		"an API that fails": {
			spoil: func(_ *testing.T, i *dataplanetest.Instance, _ *fleet.Instance) {
				i.Inject(dataplanetest.Answer(503))
			},
			want: "reachable", says: "503",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.options.HAProxyVersion == "" {
				tt.options.HAProxyVersion = modern
			}
			i := dataplanetest.Start(t, tt.options)
			spec := member(i)
			if tt.spoil != nil {
				tt.spoil(t, i, &spec)
			}
			report := preflight.Check(t.Context(), []fleet.Instance{spec}, time.Minute)
			if got := errorsOf(report); report.OK || !slices.Equal(got, []string{tt.want}) {
				t.Fatalf("found %v: %+v", got, report.Instances[0].Findings)
			}
			if f := report.Instances[0].Findings[0]; !strings.Contains(f.String(), tt.says) {
				t.Errorf("it says %s, want %q", f, tt.says)
			}
		})
	}
}

// The real API behaves in these cases as the double does.
func TestWhatIsWrongBeforeARealAPI(t *testing.T) {
	t.Parallel()
	program := realAPI("real")
	if program == "" {
		t.Log("there is none: the double alone")
		return
	}
	for want, tt := range map[string]struct {
		options dataplanetest.Options
		spoil   func(*dataplanetest.Instance, *fleet.Instance)
	}{
		"users": {options: dataplanetest.Options{UsersInConfig: true}},
		"directories": {
			options: dataplanetest.Options{Folders: dataplanetest.Folders{Certificates: "certs"}},
			spoil: func(i *dataplanetest.Instance, s *fleet.Instance) {
				s.Layout.Certificates = filepath.Join(filepath.Dir(i.Dirs.Certificates), "ssl")
			},
		},
		"credentials":   {spoil: func(_ *dataplanetest.Instance, s *fleet.Instance) { s.Password = "other" }},
		"master socket": {spoil: func(i *dataplanetest.Instance, _ *fleet.Instance) { i.KillHAProxy() }},
		"disk": {spoil: func(i *dataplanetest.Instance, _ *fleet.Instance) { // a file replaces the folder
			_ = os.RemoveAll(i.Dirs.Transactions)
			_ = os.WriteFile(i.Dirs.Transactions, nil, 0o600)
		}},
	} {
		tt.options.Program = program
		i := dataplanetest.Start(t, tt.options)
		spec := member(i)
		if tt.spoil != nil {
			tt.spoil(i, &spec)
		}
		report := preflight.Check(t.Context(), []fleet.Instance{spec}, time.Minute)
		if got := errorsOf(report); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: found %v: %+v", want, got, report.Instances[0].Findings)
		}
		i.Close()
	}
}

// A check that hangs ends at its limit. The other instances are reported.
func TestAnInstanceThatHangsKeepsNobody(t *testing.T) {
	t.Parallel()
	hangs := dataplanetest.Start(t, dataplanetest.Options{HAProxyVersion: modern})
	hangs.Inject(dataplanetest.Hang().On("POST", "/storage"))
	well := dataplanetest.Start(t, dataplanetest.Options{HAProxyVersion: modern})
	a, b := member(hangs), member(well)
	a.Name, b.Name = "hangs", "well"
	report := preflight.Check(t.Context(), []fleet.Instance{a, b}, 2*time.Second)
	if report.OK || len(report.Instances[0].Findings) == 0 || len(report.Instances[1].Findings) > 0 {
		t.Errorf("found %+v", report)
	}
}

func TestAnInstanceListedTwice(t *testing.T) {
	t.Parallel()
	i := dataplanetest.Start(t, dataplanetest.Options{HAProxyVersion: modern})
	a, b := member(i), member(i)
	a.Name, b.Name = "a", "b"
	report := preflight.Check(t.Context(), []fleet.Instance{a, b}, time.Minute)
	for _, found := range report.Instances {
		if !slices.ContainsFunc(found.Findings, func(f preflight.Finding) bool { return f.Check == "fleet" }) {
			t.Errorf("%s: %+v", found.Name, found.Findings)
		}
	}
}

// Without writing, the directories follow from the listings. No request changes anything.
func TestLookingWithoutWriting(t *testing.T) {
	t.Parallel()
	i := dataplanetest.Start(t, dataplanetest.Options{HAProxyVersion: modern})
	if err := os.WriteFile(filepath.Join(i.Dirs.Maps, "a.map"), []byte("a b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := dataplane.New(dataplane.Options{URL: i.URL(), Username: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	spec := member(i)
	if found := preflight.Judge(preflight.Gather(t.Context(), client, spec, false)); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	spec.Layout.Maps = fleet.DefaultMaps
	if found := preflight.Judge(preflight.Gather(t.Context(), client, spec, false)); len(found) != 1 || found[0].Check != "directories" {
		t.Errorf("found %v", found)
	}
	for _, r := range i.Requests() {
		if r.Method != "GET" {
			t.Errorf("asked %s %s", r.Method, r.Path)
		}
	}
}

// One instance that is listed twice, by two names of its address, is found before anything is pushed.
func TestOneInstanceByTwoNames(t *testing.T) {
	t.Parallel()
	options := dataplanetest.Options{HAProxyVersion: modern}
	one, three := member(dataplanetest.Start(t, options)), member(dataplanetest.Start(t, options))
	two := one
	three.Name = "three"
	at, err := url.Parse(one.URL)
	if err != nil {
		t.Fatal(err)
	}
	two.Name, two.URL = "two", "http://"+net.JoinHostPort("::ffff:"+at.Hostname(), at.Port())
	report := preflight.Check(t.Context(), []fleet.Instance{one, two, three}, time.Minute)
	for n, other := range []string{"two", "edge", ""} {
		found := slices.DeleteFunc(slices.Clone(report.Instances[n].Findings), func(f preflight.Finding) bool { return f.Check != "fleet" })
		if len(found) != min(len(other), 1) || other != "" && !strings.HasPrefix(found[0].Message, other+" has the same address, "+at.Host+", and the same worker") {
			t.Errorf("%s: %+v", report.Instances[n].Name, found)
		}
	}
	if report.OK {
		t.Error("all is well")
	}
}
