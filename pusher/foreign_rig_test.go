package pusher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// rawOf returns the version that an instance's API holds in memory.
func rawOf(r *rig, name string) (int64, error) {
	client, err := dataplane.New(dataplane.Options{URL: r.instances[name].URL(), Username: "admin", Password: "secret"})
	if err != nil {
		return 0, err
	}
	raw, err := client.Raw(r.t.Context())
	return raw.Version, err
}

// versionIn returns the version that a haproxy.cfg says it has.
func versionIn(config string) int64 {
	var n int64
	for line := range strings.Lines(config) {
		if after, ok := strings.CutPrefix(strings.TrimSpace(line), "# _version="); ok {
			for _, digit := range after {
				n = 10*n + int64(digit-'0')
			}
		}
	}
	return n
}

// loseState removes the state file of a pusher that was ended.
func (r *rig) loseState() {
	r.t.Helper()
	for _, name := range []string{r.options.State, r.options.State + ".lock", filepath.Join(filepath.Dir(r.options.State), "fallback.pem")} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			r.t.Fatal(err)
		}
	}
}

// fleetOf returns the text of a fleet of one instance.
func fleetOf(r *rig, name string) string {
	i := r.instances[name]
	return fmt.Sprintf(`apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: other}
spec:
  instances:
  - name: %s
    url: %s
    username: admin
    password: secret
    directories: {maps: %s, certificates: %s, general: %s}
`, name, i.URL(), i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General)
}
