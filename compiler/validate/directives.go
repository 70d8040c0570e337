package validate

import (
	"bytes"
	"errors"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxDirectives is how many directives are found at once that cannot be followed.
const maxDirectives = 100

// directiveFaults returns the directives that cannot be followed. Binding names
// the first one: each is taken out to see the next, so that as many objects are
// left out at once.
func directiveFaults(a render.Artifact) []render.Fault {
	text := bytes.Clone(snapshots.Snapshot{Files: a.Files}.Config())
	p := newPlaces(a)
	var found []render.Fault
	for range maxDirectives {
		_, err := bind.Directives(text)
		e, ok := errors.AsType[*bind.DirectiveError](err)
		if !ok {
			break
		}
		found = append(found, p.fault(snapshots.ConfigFile, e.Line, "#hapsnap: "+e.Message, ""))
		blank(text, e.Line)
	}
	return found
}

// blank overwrites a line of a text, counted from 1, with spaces.
func blank(text []byte, number int) {
	for line := range bytes.Lines(text) {
		if number--; number > 0 {
			continue
		}
		copy(line, bytes.Repeat([]byte{' '}, len(bytes.TrimRight(line, "\n"))))
		return
	}
}
