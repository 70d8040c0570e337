package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Binary returns the path of kube-apiserver, etcd, kubectl or kustomize, all of the
// same release. kustomize runs functions that are programs, with
// --enable-alpha-plugins and --enable-exec; the one in kubectl does not.
func Binary(name string) (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS") // as bin/kube-apiserver finds it
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "build", "kube")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find Kubernetes for tests: %w\n\thint: run make kube", err)
	}
	return path, nil
}

// findBinaries fails if something is missing that a server needs.
func findBinaries() error {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := Binary(name); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		return fmt.Errorf("find setpriv of util-linux: %w", err)
	}
	return nil
}

// moduleRoot looks for go.mod above the folder that tests run in, their package's.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module of %s: no go.mod", start)
		}
	}
}
