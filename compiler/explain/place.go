package explain

import (
	"errors"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Place is a line of a rendered file. Lines count from 1.
type Place struct {
	File string
	Line int
}

const placeHint = "name a line as FILE:LINE, such as haproxy.cfg:120"

// ParsePlace reads FILE:LINE, also where a column or text follows, as in what
// compilers and grep print. What is none is a usage error.
func ParsePlace(text string) (Place, error) {
	file, rest, ok := strings.Cut(text, ":")
	if !ok || rest == "" {
		return Place{}, process.WithHint(process.Usage("%s: no line is named", text), placeHint)
	}
	number, _, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(number)
	if errors.Is(err, strconv.ErrSyntax) {
		return Place{}, process.WithHint(process.Usage("%s: %q is not the number of a line", text, number), placeHint)
	}
	if err != nil {
		return Place{}, process.WithHint(process.Usage("%s: line %s is too far", text, number), placeHint)
	}
	return Place{file, line}, nil
}

// find returns the file that a person means, by its path in the snapshot or by
// one that ends so, and the text of the line. There being none is a usage error.
func (p Place) find(files []snapshots.File) (path, text string, err error) {
	var found snapshots.File
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
		if (p.File == f.Path || strings.HasSuffix(p.File, "/"+f.Path)) && len(f.Path) > len(found.Path) {
			found = f
		}
	}
	if found.Path == "" {
		return "", "", process.WithHint(process.Usage("%s is not a file of the snapshot", p.File), "use one of "+strings.Join(names, ", "))
	}
	lines := strings.Split(strings.TrimSuffix(string(found.Content), "\n"), "\n")
	if p.Line < 1 || p.Line > len(lines) {
		return "", "", process.Usage("%s has %d lines, and no line %d", found.Path, len(lines), p.Line)
	}
	return found.Path, lines[p.Line-1], nil
}
