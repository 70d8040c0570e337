package render

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// assembly takes the marks out of what templates wrote, and records for each line where it came from.
type assembly struct {
	files Templates
	sets  [][]routing.Origin // what markEnter counts in
	blank bool               // whether blank lines are kept
	empty bool               // whether nothing was written

	text    []byte
	origins []LineOrigin

	file, line int // of the template, by the last markLine
	frames     []frame
	base       []routing.Origin // of the page that is executed
	current    []byte           // the line so far
	origin     LineOrigin       // and where it came from
}

// frame is a template that is being executed: the sets of its ranges, from the outermost; -1 stands for
// an element without objects.
type frame struct {
	sets []int
}

// section adds what one execution of a template wrote.
func (a *assembly) section(marked []byte, base []routing.Origin) {
	a.base, a.frames = base, append(a.frames[:0], frame{})
	a.take(marked)
	if len(a.current) > 0 {
		a.endLine()
	}
}

// stopped returns where an execution stopped after it wrote this much: the place, and the objects of
// the line that it was about to write.
func (a *assembly) stopped(marked []byte, base []routing.Origin) LineOrigin {
	a.base, a.frames = base, []frame{{}}
	a.take(marked)
	return LineOrigin{
		Template: a.files[a.file].Path, Line: a.line,
		Objects: union(a.objects(), a.origin.Objects),
	}
}

// take adds marked text.
func (a *assembly) take(marked []byte) {
	for len(marked) > 0 {
		i := bytes.IndexByte(marked, 0)
		if i < 0 {
			a.write(marked)
			break
		}
		a.write(marked[:i])
		end := i + bytes.IndexByte(marked[i:], ';')
		a.mark(marked[i+1], marked[i+2:end])
		marked = marked[end+1:]
	}
}

// separate puts an empty line between the text so far and what follows.
func (a *assembly) separate() {
	if len(a.text) > 0 {
		a.text = append(a.text, '\n')
		a.origins = append(a.origins, LineOrigin{})
	}
}

// mark records one mark.
func (a *assembly) mark(kind byte, numbers []byte) {
	first, second, _ := bytes.Cut(numbers, []byte(","))
	x, _ := strconv.Atoi(string(first))
	y, _ := strconv.Atoi(string(second))
	top := &a.frames[len(a.frames)-1]
	switch kind {
	case markLine:
		a.file, a.line = x, y
	case markEnter:
		top.sets = append(top.sets[:min(x, len(top.sets))], y)
	case markLeave:
		top.sets = top.sets[:min(x, len(top.sets))]
	case markCall:
		a.frames = append(a.frames, frame{})
	case markBack:
		a.frames = a.frames[:len(a.frames)-1]
	}
}

// objects returns the objects of the current line: those of the innermost range that has any, otherwise
// those of the page.
func (a *assembly) objects() []routing.Origin {
	for _, f := range slices.Backward(a.frames) {
		for _, set := range slices.Backward(f.sets) {
			if set >= 0 {
				return a.sets[set]
			}
		}
	}
	return a.base
}

// write adds text without marks.
func (a *assembly) write(text []byte) {
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		a.add(line)
		if ended {
			a.endLine()
		}
		text = rest
	}
}

// add adds text to the line that is being written.
func (a *assembly) add(text []byte) {
	if len(bytes.TrimSpace(text)) > 0 {
		if a.origin.Line == 0 {
			a.origin.Template, a.origin.Line = a.files[a.file].Path, a.line
		}
		a.origin.Objects = union(a.origin.Objects, a.objects())
	}
	a.current = append(a.current, text...)
}

// endLine ends the current line. Where blank lines are dropped, so is trailing white space: templates
// leave both wherever an action stands on a line of its own.
func (a *assembly) endLine() {
	line := a.current
	if !a.blank {
		line = bytes.TrimRight(line, " \t\r")
	}
	if len(line) > 0 || a.blank {
		a.text = append(append(a.text, line...), '\n')
		a.origins = append(a.origins, a.origin)
	}
	a.current, a.origin = a.current[:0], LineOrigin{}
}

// union appends the origins of b that are not in a. The result may share memory
// with b, which is never changed.
func union(a, b []routing.Origin) []routing.Origin {
	if len(a) == 0 {
		return slices.Clip(b)
	}
	if len(b) == 0 || &a[0] == &b[0] {
		return a
	}
	for _, origin := range b {
		if !slices.Contains(a, origin) {
			a = append(a, origin)
		}
	}
	return slices.Clip(a)
}

// Artifact is what rendering produced.
type Artifact struct {
	Files []snapshots.File // sorted by path
	// Origins says, for each file, where each of its lines came from.
	Origins      map[string][]LineOrigin
	Certificates []snapshots.CertificateRef // sorted by file
}

// LineOrigin is where a line of the output came from.
type LineOrigin struct {
	Template string // as users know the file
	Line     int    // in the template, from 1; 0 for a line that no template wrote
	// Objects are those whose values are on the line, in the order in which the template reached them.
	Objects []routing.Origin
}

// Origin returns the origin of a line of a file, counted from 1, or the zero
// LineOrigin.
func (a Artifact) Origin(file string, line int) LineOrigin {
	lines := a.Origins[file]
	if line < 1 || line > len(lines) {
		return LineOrigin{}
	}
	return lines[line-1]
}

// Fault is a reason not to publish an artifact: a value that may not be written, a template that cannot
// be executed, or a line that HAProxy refuses, which package validate finds.
type Fault struct {
	Message, Hint string
	Origin        LineOrigin
	// File and Line are the place in the artifact, and Text is the line there; they are zero if there
	// is none.
	File string
	Line int
	Text string
	// Refused says that a function refused a value: a check, or fail. Then the template works as it is
	// meant to. Value is the value, if it is known.
	Refused bool
	Value   string
	// Field is the missing field of the object's content, if that is the fault.
	Field string
	// Namespace is the namespace of the objects to blame, where the line has objects of others too; ""
	// is all of them.
	Namespace string
}

// verbatim returns an author's line as it is. It takes no text: only a [policy.Line] has been checked
// for what would end the line or the section, and templates cannot make one.
func verbatim(line any) (Text, error) {
	l, ok := line.(policy.Line)
	if !ok || l.Text() == "" {
		return "", fmt.Errorf("verbatim: a value of type %T is no line of a snippet", line)
	}
	return Text(l.Text()), nil
}
