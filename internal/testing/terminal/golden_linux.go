package terminal

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Golden compares what a terminal of 80 and one of 120 columns show with testdata/terminal/NAME-COLUMNS.txt, without
// its colours. Tests with -update rewrite the files.
func Golden(t *testing.T, name string, show func(to *os.File)) {
	t.Helper()
	GoldenOf(t, name, func(screen *Terminal) string {
		show(screen.File)
		return screen.Seen(t)
	})
}

// GoldenOf is Golden for what show makes of what a terminal showed.
func GoldenOf(t *testing.T, name string, show func(screen *Terminal) string) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "")
	t.Setenv("NO_COLOR", "")
	for _, columns := range []uint16{80, 120} {
		got := colours.ReplaceAllString(show(Open(t, columns)), "")
		file := filepath.Join("testdata", "terminal", fmt.Sprintf("%s-%d.txt", name, columns))
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}
