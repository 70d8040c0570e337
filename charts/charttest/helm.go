// Package charttest tests charts/hapsnap. Each of its ci/*-values.yaml is linted, rendered by Helm 4 and Helm
// 3, given to a real API server that enforces Pod Security, and compared with the programs' own flags, files
// and permissions. Tests that need HAProxy are in package instancetest.
//
// Helm is built by `make test` into build/helm, or by `make helm` alone. HELM_ASSETS
// names another folder.
package charttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Release is the name of every release that tests render.
const Release = "edge"

// Helm runs a program of Helm, helm or helm3, and returns its output. It ignores the caller's own settings and
// plugins.
func Helm(tb testing.TB, program string, args ...string) (stdout string, err error) {
	tb.Helper()
	dir := os.Getenv("HELM_ASSETS")
	if dir == "" {
		dir = filepath.Join(Root(tb), "build", "helm")
	}
	path := filepath.Join(dir, program)
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("find Helm: %v\n\thint: run make helm", err)
	}
	home := tb.TempDir()
	cmd := exec.CommandContext(tb.Context(), path, args...)
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %v: %w\n%s%s", program, args, err, &out, &complaints)
	}
	return out.String(), nil
}

// Template renders the chart for a namespace.
func Template(tb testing.TB, program, namespace string, args ...string) (string, error) {
	tb.Helper()
	return Helm(tb, program, append([]string{"template", Release, Chart(tb), "--namespace", namespace}, args...)...)
}

// Objects returns the objects of YAML documents.
func Objects(tb testing.TB, documents string) []unstructured.Unstructured {
	tb.Helper()
	var out []unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(documents)), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// Find returns the object of a kind and name.
func Find(tb testing.TB, objects []unstructured.Unstructured, kind, name string) unstructured.Unstructured {
	tb.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	tb.Fatalf("no %s %s", kind, name)
	return unstructured.Unstructured{}
}

// Chart is the chart's folder.
func Chart(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(Root(tb), "charts", "hapsnap")
}

// Root is the folder of the module.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no go.mod above this folder")
		}
	}
}
