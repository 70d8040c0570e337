package difference

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Unified returns a unified diff with these headers, or "" for equal texts. An
// empty file that comes or goes has headers only.
func Unified(from, x, to, y string) string {
	text := string(diff.Diff(from, []byte(x), to, []byte(y)))
	if text == "" {
		return fmt.Sprintf("--- %s\n+++ %s\n", from, to)
	}
	_, text, _ = strings.Cut(text, "\n") // the command, which nobody ran
	return text
}

// change is a line that a diff takes away or adds, with its number on that side.
type change struct {
	old  bool
	line int
	run  int // changes that follow upon one another have the same
}

// changes reads a unified diff.
func changes(text string) []change {
	var out []change
	x, y, run := 0, 0, 0
	_, text, _ = strings.Cut(text, "\n")
	_, text, _ = strings.Cut(text, "\n")
	for line := range strings.Lines(text) {
		switch line[0] {
		case '@':
			x, y = hunkStart(line)
			run++
		case '-':
			out = append(out, change{old: true, line: x, run: run})
			x++
		case '+':
			out = append(out, change{line: y, run: run})
			y++
		case ' ':
			x, y, run = x+1, y+1, run+1
		}
	}
	return out
}

// hunkStart reads "@@ -x,n +y,n @@".
func hunkStart(line string) (x, y int) {
	var n, m int
	_, _ = fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &x, &n, &y, &m)
	return x, y
}

// first returns the first line by which two texts differ: where lines were
// replaced, the first of the new ones. It reports false if they are the same.
func first(x, y string) (change, bool) {
	if x == y {
		return change{}, false
	}
	all := changes(Unified("a", x, "b", y))
	for _, c := range all {
		if !c.old && c.run == all[0].run {
			return c, true
		}
	}
	if len(all) == 0 {
		return change{line: 1}, true
	}
	return all[0], true
}
