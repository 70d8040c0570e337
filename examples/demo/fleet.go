package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// The credentials of the demo's Dataplane APIs.
const (
	apiUser     = "admin"
	apiPassword = "on-loopback-only"
)

// writeFleet writes the file that tells the pusher its instances.
func (w *world) writeFleet() error {
	var b strings.Builder
	b.WriteString("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata:\n  name: edge\nspec:\n")
	b.WriteString("  rollout:\n    waves: [\"1\", \"100%\"]\n    soak: 1s\n  instances:\n")
	for i := 1; i <= instanceCount; i++ {
		dir := w.path(instanceName(i))
		fmt.Fprintf(&b, "  - name: %s\n    url: http://%s:%d\n    username: %s\n    passwordFile: password\n",
			instanceName(i), instanceAddress(i), apiPort, apiUser)
		fmt.Fprintf(&b, "    directories:\n      maps: %s\n      certificates: %s\n      general: %s\n",
			filepath.Join(dir, "maps"), filepath.Join(dir, "ssl"), filepath.Join(dir, "general"))
	}
	if err := writeFile(w.path("password"), []byte(apiPassword+"\n")); err != nil {
		return err
	}
	return writeFile(w.path("fleet.yaml"), []byte(b.String()))
}
