package function

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A path becomes a key of a ConfigMap, and the key leads back to the path.
func TestKey(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"haproxy.cfg":          "haproxy.cfg",
		"maps/host.map":        "maps..host.map",
		"files/a_b-c/auth.lua": "files..a_b-c..auth.lua",
	} {
		key := Key(path)
		if problems := validation.IsConfigMapKey(key); key != want || Path(key) != path || len(problems) > 0 {
			t.Errorf("%s: key %s, path %s, %v", path, key, Path(key), problems)
		}
	}
}

func sealed(files ...snapshots.File) snapshots.Snapshot {
	return snapshots.Draft{Files: files}.Number(1, snapshots.ID{})
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	s := sealed(snapshots.File{Path: "haproxy.cfg", Content: []byte("global\n")}, snapshots.File{Path: "files/x", Content: []byte{0xff}})
	node, err := configMap("", "edge", s)
	if err != nil {
		t.Fatal(err)
	}
	text := node.MustString()
	for _, want := range []string{
		"kind: ConfigMap\n", "  name: edge-" + s.Manifest.Spec.Digest.Short() + "\n", "immutable: true\n",
		"  haproxy.cfg: |\n    global\n", "  snapshot.yaml: |\n", "binaryData:\n", "  files..x: /w==\n", "    hapsnap.dev/snapshots: 'edge'\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "namespace") {
		t.Errorf("a namespace that nobody gave:\n%s", text)
	}
	if _, err := configMap("", "Edge", s); !errors.Is(err, errBadName) {
		t.Errorf("a bad name: %v", err)
	}
}

// Content that does not fit is an error that names the ten largest files.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	var files []snapshots.File
	for i := range 12 {
		files = append(files, snapshots.File{Path: fmt.Sprintf("maps/%02d.map", i), Content: make([]byte, 87_000+i)})
	}
	if err := fits(files); err != nil { // 1,044,066 bytes
		t.Errorf("it fits: %v", err)
	}
	files = append(files, snapshots.File{Path: "haproxy.cfg", Content: make([]byte, maxSize-1_044_066)})
	if err := fits(files); err != nil {
		t.Errorf("it just fits: %v", err)
	}
	files = append(files, snapshots.File{Path: "maps/one.map", Content: []byte("x")})
	err := fits(files)
	if !errors.Is(err, errTooLarge) {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(err.Error(), "the largest files: ")
	if names := strings.Split(listed, ", "); len(names) != 10 || names[0] != "maps/11.map 87011" || names[9] != "maps/02.map 87002" {
		t.Errorf("%q", names)
	}
}
