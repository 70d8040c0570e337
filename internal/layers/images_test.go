package layers

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// ignored reports whether a build of images does not see a file. The last pattern counts that matches the file
// or a folder that it is in.
func ignored(patterns []string, file string) bool {
	out := false
	for _, pattern := range patterns {
		except := strings.HasPrefix(pattern, "!")
		for at := file; at != "."; at = path.Dir(at) {
			if matches, err := path.Match(strings.TrimPrefix(pattern, "!"), at); err == nil && matches {
				out = !except
			}
		}
	}
	return out
}

// The images are built from the folder without what .dockerignore names. All files that programs are made of
// must remain.
func TestImagesSeeWhatProgramsAreMadeOf(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	patterns := strings.Fields(string(text))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const format = `{{if and .Module .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "../../cmd/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	for _, file := range files {
		name, err := filepath.Rel(root, file)
		if err != nil || ignored(patterns, filepath.ToSlash(name)) {
			t.Errorf("%s is not there when images are built: %v", name, err)
		}
	}
	if len(files) < 100 {
		t.Errorf("programs are made of %d files", len(files))
	}
}
