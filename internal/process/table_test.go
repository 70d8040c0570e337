package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/testing/terminal"
)

// history is a table like those that verbs print.
func history() Table {
	t := Table{Columns: []Column{
		{Title: "SNAPSHOT"}, {Title: "AGE"}, {Title: "SIGNER", Wide: true},
		{Title: "STATE", Mood: func(cell string) Mood { return map[string]Mood{"running": Good, "rejected": Bad}[cell] }},
		{Title: "TOOK", Cut: true}, {Title: "SUBJECT", Cut: true},
	}}
	t.Add("r000012-9f3ac01b2d", "5m", "carol", "running", "reload: haproxy.cfg:120: +server-template web 10 is of another shape", "+1 backend (Ingress shop/web), 2 routes changed\nof two teams")
	t.Add("r000011-0c2ab01f2e", "2h", "-", "rejected", "-", "2 routes of größer.example changed")
	return t
}

// A table is as wide as the terminal, and complete if the user asks for it.
func TestTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		style Style
		want  string
	}{
		"a pipe": {Style{}, `
SNAPSHOT            AGE  STATE     TOOK                                                                  SUBJECT
r000012-9f3ac01b2d  5m   running   reload: haproxy.cfg:120: +server-template web 10 is of another shape  +1 backend (Ingress shop/web), 2 routes changed …
r000011-0c2ab01f2e  2h   rejected  -                                                                     2 routes of größer.example changed
`},
		"80 columns": {Style{Width: 80}, `
SNAPSHOT            AGE  STATE     TOOK                   SUBJECT
r000012-9f3ac01b2d  5m   running   reload: haproxy.cfg:…  +1 backend (Ingress s…
r000011-0c2ab01f2e  2h   rejected  -                      2 routes of größer.ex…
`},
		"120 columns": {Style{Width: 120}, `
SNAPSHOT            AGE  STATE     TOOK                                       SUBJECT
r000012-9f3ac01b2d  5m   running   reload: haproxy.cfg:120: +server-templat…  +1 backend (Ingress shop/web), 2 routes c…
r000011-0c2ab01f2e  2h   rejected  -                                          2 routes of größer.example changed
`},
		"80 columns, all of it": {Style{Width: 80, Wide: true}, `
SNAPSHOT            AGE  SIGNER  STATE     TOOK                                                                  SUBJECT
r000012-9f3ac01b2d  5m   carol   running   reload: haproxy.cfg:120: +server-template web 10 is of another shape  +1 backend (Ingress shop/web), 2 routes changed; of two teams
r000011-0c2ab01f2e  2h   -       rejected  -                                                                     2 routes of größer.example changed
`},
		"with colours": {Style{Width: 80, Colour: true}, `
SNAPSHOT            AGE  STATE       TOOK                  SUBJECT
r000012-9f3ac01b2d  5m   ` + "\x1b[32m✔ running\x1b[0m" + `   reload: haproxy.cfg…  +1 backend (Ingress …
r000011-0c2ab01f2e  2h   ` + "\x1b[31m✗ rejected\x1b[0m" + `  -                     2 routes of größer.e…
`},
	} {
		var out bytes.Buffer
		table := history()
		if err := table.Write(&screen{&out, c.style}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, "\n"+out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Long text continues below its beginning.
func TestLabel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, width := range []int{0, 40} {
		Label(&screen{&out, Style{Width: width}}, "trouble", "store, for %s: the repository cannot be reached:\nconnection refused", "1h")
	}
	want := `trouble   store, for 1h: the repository cannot be reached:
          connection refused
trouble   store, for 1h: the repository
          cannot be reached:
          connection refused
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The width is that of the terminal, unless COLUMNS says otherwise.
func TestWidth(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "")
	screen := terminal.Open(t, 100)
	if got := StyleOf(On(io.Discard, screen.File, false)).Width; got != 100 {
		t.Errorf("a terminal of 100 columns has %d", got)
	}
	if got := StyleOf(On(io.Discard, io.Discard, false)).Width; got != 0 {
		t.Errorf("what is no terminal has %d columns", got)
	}
	t.Setenv("COLUMNS", "72")
	if got := StyleOf(On(io.Discard, io.Discard, false)).Width; got != 72 {
		t.Errorf("COLUMNS is 72, and the width %d", got)
	}
}

// A cell commands no terminal.
func TestCellsAreEscaped(t *testing.T) {
	t.Parallel()
	table := Table{Columns: []Column{{Title: "WHO"}}}
	table.Add("a\x1b[2Jb")
	var out strings.Builder
	if err := table.Write(&out); err != nil || out.String() != "WHO\na\\x1b[2Jb\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

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
