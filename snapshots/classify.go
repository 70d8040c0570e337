package snapshots

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Verdict is what it takes to bring a worker from one bound configuration to another.
type Verdict string

// The verdicts.
const (
	Nothing Verdict = "nothing"
	Runtime Verdict = "runtime" // the running worker is changed
	Reload  Verdict = "reload"
)

// Classified is a verdict with the line that decides, of the second configuration, or
// of the first where Old is set. The line is zero for a difference that no line shows,
// and File is haproxy.cfg or the path in the snapshot. Text has no secrets.
type Classified struct {
	Verdict Verdict
	Old     bool
	File    string
	Line    int // from 1
	Text    string
}

// Classify says what it takes to bring a worker that was loaded with one bound
// configuration to another, apart from the name that it has for what it runs. What is
// not known to be possible at run time needs a reload.
func Classify(from, to Bound) Classified {
	if from.Shape != to.Shape {
		return classifyReload(from, to)
	}
	for i, server := range to.Servers {
		if i < len(from.Servers) && from.Servers[i] != server {
			return to.decide(Runtime, to.serverLines()[i], false)
		}
	}
	for i, f := range to.Files {
		if i < len(from.Files) && !bytes.Equal(from.Files[i].Content, f.Content) {
			return Classified{Verdict: Runtime, File: f.Source}
		}
	}
	return Classified{Verdict: Nothing}
}

// classifyReload finds the line by which the shapes differ.
func classifyReload(from, to Bound) Classified {
	before, after := from.shapeLines(), to.shapeLines()
	for i, line := range after {
		switch {
		case i >= len(before) || before[i].text != line.text && !goes(before[i:], after[i:]):
			return to.decide(Reload, line.number, false)
		case before[i].text != line.text:
			return from.decide(Reload, before[i].number, true)
		}
	}
	if len(before) > len(after) {
		return from.decide(Reload, before[len(after)].number, true)
	}
	return classifyFiles(from, to)
}

// goes reports whether the first line has gone, rather than become another or one come.
func goes(before, after []shapeLine) bool {
	return len(before) > len(after) && len(before) > 1 && before[1].text == after[0].text
}

// classifyFiles finds the first file that one of the two does not have. What is in it
// may be a key, and is not shown.
func classifyFiles(from, to Bound) Classified {
	one := func(a, b []BoundFile) (BoundFile, bool) {
		i := slices.IndexFunc(a, func(f BoundFile) bool {
			_, found := slices.BinarySearchFunc(b, f.Path, func(g BoundFile, path string) int { return cmp.Compare(g.Path, path) })
			return !found
		})
		if i < 0 {
			return BoundFile{}, false
		}
		return a[i], true
	}
	if f, ok := one(to.Files, from.Files); ok {
		return Classified{Verdict: Reload, File: f.Source}
	}
	if f, ok := one(from.Files, to.Files); ok {
		return Classified{Verdict: Reload, File: f.Source, Old: true}
	}
	return Classified{Verdict: Reload}
}

// decide returns a verdict for a line of haproxy.cfg, 0 for none.
func (b Bound) decide(v Verdict, number int, old bool) Classified {
	out := Classified{Verdict: v, Old: old, File: ConfigFile, Line: number}
	for n, line := range numberedLines(b.Config) {
		if n == number {
			out.Text = b.Redact(string(line))
		}
	}
	return out
}

// shapeLine is a line of a bound configuration as far as changing it needs a reload.
type shapeLine struct {
	number int // from 1
	text   string
}

// shapeLines returns the lines that count for the shape.
func (b Bound) shapeLines() []shapeLine {
	var out []shapeLine
	servers, static := b.Servers, b.static()
	for number, line := range numberedLines(b.Config) {
		text := string(line)
		switch {
		case b.source(number) == 0:
			continue
		case b.begins(number) && strings.HasPrefix(text, "    # hapsnap servers "):
			text = "servers"
		case b.joins(number) && strings.HasPrefix(text, "    server ") && len(servers) > 0:
			text, servers = servers[0].shapeText(text, static), servers[1:]
		}
		out = append(out, shapeLine{number, text})
	}
	return out
}

// static returns the backends whose weights count for the shape.
func (b Bound) static() map[string]bool {
	backends := map[string]bool{}
	for _, s := range b.Servers {
		backends[s.Backend] = true
	}
	return staticBackends(b.Config, backends)
}

// serverLines returns the number of the line of each server.
func (b Bound) serverLines() []int {
	out := make([]int, 0, len(b.Servers))
	for number, line := range numberedLines(b.Config) {
		if b.joins(number) && bytes.HasPrefix(line, []byte("    server ")) {
			out = append(out, number)
		}
	}
	return out
}

// source returns the line of the snapshot that a line comes from, 0 for none.
func (b Bound) source(number int) int {
	if number < 1 || number > len(b.Lines) {
		return 0
	}
	return b.Lines[number-1]
}

// begins reports whether a line is a directive that others were joined to, and joins
// whether it is one of those others.
func (b Bound) begins(number int) bool {
	return b.source(number) == b.source(number+1) && !b.joins(number)
}

func (b Bound) joins(number int) bool {
	return b.source(number) != 0 && b.source(number) == b.source(number-1)
}

// shapeText returns the server's line without what can be changed at run time.
func (s BoundServer) shapeText(line string, static map[string]bool) string {
	rest := strings.TrimPrefix(line, "    server "+s.Name+" "+string(s.appendAddress(nil)))
	if weight, ok := strings.CutPrefix(rest, " weight "); ok {
		_, rest, _ = strings.Cut(weight, " ")
		rest = " " + rest
	}
	rest = strings.TrimSuffix(rest, " disabled")
	if static[s.Backend] && s.Weight != 1 {
		rest += " weight " + strconv.Itoa(s.Weight)
	}
	return "server " + s.Name + " " + strings.TrimSpace(rest)
}
