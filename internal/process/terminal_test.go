package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestColoured(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, c := range map[string]struct {
		to            io.Writer
		noColor, term string
		want          bool
	}{
		"a terminal":              {terminal, "", "xterm", true},
		"NO_COLOR":                {terminal, "1", "xterm", false},
		"a terminal that is dumb": {terminal, "", "dumb", false},
		"a file":                  {file, "", "xterm", false},
		"a buffer":                {&bytes.Buffer{}, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := Coloured(c.to); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
