// Package terminal is a terminal for tests, which see in it what a person sees.
package terminal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Terminal is a terminal that a program writes to, and what was written.
type Terminal struct {
	*os.File // for the program

	screen *os.File
	sent   []byte
}

// Open opens a terminal of so many columns for as long as the test runs.
func Open(t *testing.T, columns uint16) *Terminal {
	t.Helper()
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	out := &Terminal{screen: open("/dev/ptmx")}
	master := int(out.screen.Fd())
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	out.File = open("/dev/pts/" + strconv.Itoa(number))
	if err := unix.IoctlSetWinsize(int(out.File.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return out
}

// patience is how long a program may be silent while a text is expected, in milliseconds.
const patience = 120_000

// Until waits for a text on the terminal, and returns everything that the terminal got so far. Lines end with
// \n.
func (o *Terminal) Until(t *testing.T, text string) string {
	t.Helper()
	part := make([]byte, 4096)
	for !bytes.Contains(o.sent, []byte(text)) {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(o.screen.Fd()), Events: unix.POLLIN}}, patience)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n := 0
		if err == nil && ready == 0 {
			err = os.ErrDeadlineExceeded
		}
		if err == nil {
			n, err = o.screen.Read(part)
		}
		if err != nil {
			t.Fatalf("read the terminal: %v; it was sent\n%s", err, o.sent)
		}
		o.sent = append(o.sent, part[:n]...)
	}
	return strings.ReplaceAll(string(o.sent), "\r\n", "\n")
}

// Seen returns everything that the terminal got.
func (o *Terminal) Seen(t *testing.T) string {
	t.Helper()
	const end = "(the end of it)"
	if _, err := o.WriteString(end); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(o.Until(t, end), end)
}

var update = flag.Bool("update", false, "rewrite the golden files")

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Golden compares what terminals of 80 and 120 columns show with testdata/terminal/NAME-COLUMNS.txt, without
// colours. Tests with -update rewrite the files.
func Golden(t *testing.T, name string, show func(to *os.File)) {
	t.Helper()
	GoldenOf(t, name, func(screen *Terminal) string {
		show(screen.File)
		return screen.Seen(t)
	})
}

// GoldenOf is Golden after show has changed what a terminal showed.
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
