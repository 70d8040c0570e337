package process

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Coloured reports whether what is printed to w may have colours: where a person
// reads it at a terminal, and has not set NO_COLOR to anything but nothing
// (https://no-color.org).
func Coloured(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && Terminal(w) }

// Terminal reports whether what is printed to w is shown by a terminal that can move
// its cursor.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
