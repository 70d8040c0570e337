package runtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/imagetest"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

const manifests = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop}, spec: {ingressClassName: hapsnap, rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}
`

// The files that the Dockerfile copies are sufficient for the images, with their users and a read-only root. No
// image has a shell.
func TestImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, filepath.Join(dir, "web.yaml"), manifests)
	writeAll(t, filepath.Join(dir, "haproxy.cfg"), "global\n    maxconn 10\ndefaults\n    mode http\n    timeout client 1s\n    timeout connect 1s\n    timeout server 1s\nfrontend status\n    bind 127.0.0.1:8404\n")
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // another user writes there
		t.Fatal(err)
	}
	for _, c := range []struct {
		target  string
		command []string
		want    string
	}{
		{"compiler", []string{"compiler", "render", "-f", "/data/web.yaml", "-o", "/data/out"}, ""},
		{"compiler", []string{"haproxy", "-c", "-f", "/data/haproxy.cfg"}, ""},
		{"hapsnap", []string{"hapsnap", "render", "-f", "/data/web.yaml", "-o", "/data/out-of-hapsnap"}, ""},
		{"pusher", []string{"bootstrap"}, "usage: bootstrap"},
		{"haproxy", []string{"haproxy", "-c", "-f", "/data/haproxy.cfg"}, ""},
		{"haproxy", []string{"dataplaneapi", "--help"}, "-f"},
		{"haproxy", []string{"bootstrap"}, "usage: bootstrap"},
	} {
		i := image(t, c.target)
		out, err := podtest.Run(t, i, map[string]string{"/data": dir, "/tmp": dir}, c.command...)
		fails := strings.HasPrefix(c.want, "usage")
		if (err != nil) != fails || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %v\n%s", c.target, c.command, err, out)
		}
		// Without a volume, as with docker run, the image's user writes to /tmp.
		if info, err := os.Stat(filepath.Join(i.Root, "tmp")); c.target != "pusher" && (err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777) {
			t.Errorf("%s: /tmp: %v: %v", c.target, info, err)
		}
		for _, shell := range []string{"bin/sh", "usr/bin/sh", "bin/busybox", "bin/bash"} {
			if _, err := os.Stat(filepath.Join(i.Root, shell)); err == nil {
				t.Errorf("%s has %s", c.target, shell)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out", "haproxy.cfg")); err != nil || !strings.Contains(string(text), "shop_web") {
		t.Errorf("%v\n%s", err, text)
	}
	if out, err := podtest.Run(t, image(t, "compiler"), nil, "compiler", "render", "-f", "/etc/ssl", "-o", "/out"); err == nil {
		t.Errorf("the root can be written:\n%s", out)
	}
}

// statusInImage returns the output of pusher status about the release, in the pusher's image.
func (r *release) statusInImage(t *testing.T) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, filepath.Join(dir, "kubeconfig"), string(text))
	return podtest.Run(t, image(t, "pusher"), map[string]string{"/data": dir}, "pusher", "status", "--kubeconfig", "/data/kubeconfig",
		"--state", "secret:"+r.namespace+"/"+charttest.Release+"-hapsnap-pusher")
}

// Two builds of the same source give the same image. The base images contribute nothing.
func TestImagesAreReproducible(t *testing.T) {
	t.Parallel()
	again := imagetest.New(t, charttest.Root(t), t.TempDir())
	for _, target := range []string{"compiler", "pusher", "haproxy"} {
		first := image(t, target)
		second := again.Build(t, target)
		one, err := first.Digest()
		if err != nil {
			t.Fatal(err)
		}
		two, err := second.Digest()
		if err != nil || one != two {
			t.Errorf("%s: %s and %s: %v", target, one, two, err)
		}
		if first.Base != "scratch" || !strings.Contains(first.Labels, `org.opencontainers.image.version="$VERSION"`) || !strings.Contains(first.Labels, `org.opencontainers.image.revision="$REVISION"`) {
			t.Errorf("%s: from %s with labels %s", target, first.Base, first.Labels)
		}
		if target == "haproxy" && first.StopSignal != "SIGUSR1" {
			t.Errorf("%s stops with %s", target, first.StopSignal)
		}
	}
}

// writeAll writes a file that every user may read.
func writeAll(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // the file is for every user
		t.Fatal(err)
	}
}
