package bootstrap

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A pod gets the first configuration, its folders, and the program. A pod that is set up again keeps the
// configuration that it ran, unless that is empty.
func TestPrepare(t *testing.T) {
	t.Parallel()
	files, program := t.TempDir(), t.TempDir()
	write(t, filepath.Join(files, "bootstrap.cfg"), "# the first\n")
	for _, c := range []struct{ before, want string }{{"", "# the first\n"}, {"# of a snapshot\n", "# of a snapshot\n"}} {
		config := t.TempDir()
		path := filepath.Join(config, "haproxy.cfg")
		write(t, path, c.before)
		environment := []string{"CONFIG_DIR=" + config, "FILES_DIR=" + files, "PROGRAM_DIR=" + program}
		for range 2 {
			var said bytes.Buffer
			if code := Main([]string{"prepare"}, environment, &said, &said); code != 0 {
				t.Fatalf("exit code %d: %s", code, &said)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != c.want {
			t.Errorf("%q, %v", text, err)
		}
		for _, folder := range folders {
			if info, err := os.Stat(filepath.Join(config, folder)); err != nil || !info.IsDir() {
				t.Errorf("%s: %v", folder, err)
			}
		}
	}
	copied := exec.CommandContext(t.Context(), filepath.Join(program, "bootstrap"), "-test.run=^$")
	if out, err := copied.CombinedOutput(); err != nil {
		t.Errorf("the copy of the program: %v\n%s", err, out)
	}
}

// The program says what is wrong, and fails.
func TestFaults(t *testing.T) {
	t.Parallel()
	missing := t.TempDir()
	for name, c := range map[string]struct {
		args, environment []string
		want              string
	}{
		"no verb":                {nil, nil, "usage: bootstrap"},
		"another verb":           {[]string{"reload"}, nil, "usage: bootstrap"},
		"no number":              {[]string{"haproxy"}, []string{"DRAIN_SECONDS=5m"}, `DRAIN_SECONDS is "5m"`},
		"no first configuration": {[]string{"prepare"}, []string{"CONFIG_DIR=" + missing, "FILES_DIR=" + missing}, "read the first configuration"},
		"no HAProxy":             {[]string{"haproxy"}, []string{"HAPROXY=/nowhere/haproxy", "MASTER_SOCKET=" + filepath.Join(missing, "m.sock")}, "find /nowhere/haproxy"},
		"HAProxy that fails":     {[]string{"haproxy"}, []string{"HAPROXY=/bin/false", "MASTER_SOCKET=" + filepath.Join(missing, "n.sock")}, ""},
	} {
		var said bytes.Buffer
		if code := Main(c.args, c.environment, &said, &said); code == 0 || !bytes.Contains(said.Bytes(), []byte(c.want)) {
			t.Errorf("%s: exit code %d: %s", name, code, &said)
		}
	}
}
