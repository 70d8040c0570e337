package runtest

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
)

// existing installs a release that takes over the fleet of docs/how-to/existing-fleet.md, which a shell script
// sets up. It waits until the release serves a tenant.
func (r *release) existing(t *testing.T, host string) {
	t.Helper()
	dir := filepath.Join(charttest.Root(t), "examples", "fleet", "existing")
	manifest, err := os.ReadFile(filepath.Join(dir, "haproxy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.server.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: haproxy, labels: {pod-security.kubernetes.io/enforce: restricted}}}")
	r.server.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: haproxy-credentials, namespace: haproxy}, stringData: {username: admin, password: s3cr3t}}")
	r.server.Apply(t, string(manifest))
	text, err := charttest.Template(t, "helm", r.namespace, "--values", written(t, values), "--values", filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.server.Apply(t, text)
	eventually.Holds(t, "both pods of the existing fleet serve "+host, func() bool {
		var pods corev1.PodList
		if err := r.server.Client().List(t.Context(), &pods, client.InNamespace("haproxy")); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.Status.PodIP == "" || status(t, net.JoinHostPort(p.Status.PodIP, "8080"), host, "/") != http.StatusOK {
				return false
			}
		}
		return len(pods.Items) == 2
	})
}

// withShell is an image with this machine's shell, and the programs that the script needs.
func withShell(t *testing.T, from imagetest.Image) imagetest.Image {
	t.Helper()
	root := filepath.Join(images.dir, "with-shell")
	script := `umask 022; cp -a "$1" "$2"; for name in sh cp cat mkdir sleep test; do
		path=$(readlink -f "$(PATH=/usr/bin:/bin command -v $name || echo /usr/bin/$name)"); [ -f "$path" ] || path=/usr/bin/$name
		install -D -m 0755 "$path" "$2/bin/$name"
		ldd "$path" | sed -n 's,^[^/]*\(/[^ ]*\) .*,\1,p' | while read -r library; do install -D -m 0755 "$library" "$2$library"; done
	done`
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-euc", script, "sh", from.Root, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	from.Root, from.StopSignal = root, "SIGTERM"
	from.Env = []string{"PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/bin"}
	return from
}
