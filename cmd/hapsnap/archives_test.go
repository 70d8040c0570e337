package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// krew is the part of a plugin's manifest that krew needs for an installation.
type krew struct {
	Spec struct {
		Version   string `json:"version"`
		Platforms []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// The files of a release fit together: archives, checksums and the manifest for krew.
func TestArchives(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	const version = "v1.2.3"
	build := exec.CommandContext(t.Context(), "../../hack/archives", out, version, runtime.GOOS+"/"+runtime.GOARCH)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var manifest krew
	read(t, out, "krew.yaml", func(data []byte) error { return yaml.Unmarshal(data, &manifest) })
	if manifest.Spec.Version != version || len(manifest.Spec.Platforms) != 1 {
		t.Fatalf("the manifest of krew is of version %s for %d systems", manifest.Spec.Version, len(manifest.Spec.Platforms))
	}
	var sums string
	read(t, out, "hapsnap_"+version+"_checksums.txt", func(data []byte) error { sums = string(data); return nil })
	for _, p := range manifest.Spec.Platforms {
		archive := p.URI[strings.LastIndex(p.URI, "/")+1:]
		var files map[string][]byte
		read(t, out, archive, func(data []byte) (err error) {
			sum := sha256.Sum256(data)
			if p.SHA256 != hex.EncodeToString(sum[:]) || !strings.Contains(sums, p.SHA256+"  "+archive+"\n") {
				t.Errorf("%s: the checksum is %x, krew has %s, the list is\n%s", archive, sum, p.SHA256, sums)
			}
			files, err = unpack(data)
			return err
		})
		for _, name := range []string{p.Bin, "LICENSE", "man/hapsnap.1", "man/hapsnap-pin.1"} {
			if len(files[name]) == 0 {
				t.Errorf("%s has no %s, only %v", archive, name, slices.Sorted(maps.Keys(files)))
			}
		}
		prints(t, files[p.Bin], "hapsnap "+version+"\n")
	}
}

func read(t *testing.T, folder, name string, use func([]byte) error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = use(data)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func unpack(data []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(zipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[filepath.Clean(header.Name)], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// prints checks that the program prints its version.
func prints(t *testing.T, program []byte, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-hapsnap")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), path, "--version")
	run.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var initTrace bytes.Buffer
	run.Stderr = &initTrace
	out, err := run.Output()
	if err != nil || string(out) != want {
		t.Errorf("--version prints %q, %v; want %q", out, err, want)
	}
	startsSoon(t, initTrace.String())
}

// startsSoon fails if a package of ours prepares much before main, since every command pays for it: long
// regular expressions and templates must be compiled when they are first needed.
func startsSoon(t *testing.T, initTrace string) {
	t.Helper()
	const most = 1_000_000
	lines := regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(initTrace, -1)
	for _, line := range lines {
		allocated, err := strconv.Atoi(line[2])
		if err != nil || strings.HasPrefix(line[1], "github.com/hapsnap/") && allocated > most {
			t.Errorf("%s allocates %d bytes before main, more than %d", line[1], allocated, most)
		}
	}
	if len(lines) == 0 {
		t.Errorf("no package was seen to start:\n%s", initTrace)
	}
}
