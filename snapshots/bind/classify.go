package bind

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Verdict says how a worker can be brought from one bound configuration to another.
type Verdict string

// The verdicts.
const (
	Nothing Verdict = "nothing"
	Runtime Verdict = "runtime" // the running worker is changed
	Reload  Verdict = "reload"
)

// Classified is a verdict with the line that decides it, of the second configuration, or of
// the first if Old is set. The line is zero for a difference that no line shows. File is
// haproxy.cfg or the path in the snapshot. Text has no secrets.
type Classified struct {
	Verdict Verdict
	Old     bool
	File    string
	Line    int // from 1
	Text    string
}

// Classify says how a worker that was loaded with one bound configuration can be brought to another. It ignores
// the `node` line. A change needs a reload unless it is known to be possible at run time.
func Classify(from, to Bound) Classified {
	if from.Shape != to.Shape {
		line, old, differ := firstDifference(from.shapeLines(), to.shapeLines())
		switch {
		case !differ:
			if c, ok := classifyOdd(from, to); ok {
				return c
			}
			return classifyFiles(from, to)
		case old:
			return from.decide(Reload, line.number, true)
		default:
			return to.decide(Reload, line.number, false)
		}
	}
	for i, server := range to.Servers {
		if i < len(from.Servers) && from.Servers[i] != server {
			return to.decide(Runtime, to.serverLines()[i], false)
		}
	}
	before := make(map[string]File, len(from.Files)) // there may be thousands of certificates
	for _, f := range from.Files {
		before[f.Source] = f
	}
	for _, f := range to.Files {
		old, found := before[f.Source]
		switch {
		case !found || bytes.Equal(old.Content, f.Content):
		case f.Kind == MapFile:
			return classifyMap(old, f)
		case f.Kind == CertificateFile:
			return Classified{Verdict: Runtime, File: f.Source}
		default: // two files of one hash
			return Classified{Verdict: Reload, File: f.Source}
		}
	}
	return Classified{Verdict: Nothing}
}

// classifyMap finds the line by which two versions of a map differ.
func classifyMap(from, to File) Classified {
	line, old, _ := firstDifference(numbered(from.Content), numbered(to.Content))
	return Classified{Verdict: Runtime, Old: old, File: to.Source, Line: line.number, Text: line.text}
}

// classifyOdd finds the first line of a map that differs and that only a reload changes.
func classifyOdd(from, to Bound) (Classified, bool) {
	for _, after := range to.Maps {
		i := slices.IndexFunc(from.Maps, func(m Map) bool { return m.Source == after.Source })
		if i < 0 || slices.Equal(from.Maps[i].Odd, after.Odd) {
			continue
		}
		line, old, _ := firstDifference(from.oddLines(from.Maps[i]), to.oddLines(after))
		return Classified{Verdict: Reload, Old: old, File: after.Source, Line: line.number, Text: line.text}, true
	}
	return Classified{}, false
}

// oddLines returns the odd lines of a map with their numbers.
func (b Bound) oddLines(m Map) []shapeLine {
	i := slices.IndexFunc(b.Files, func(f File) bool { return f.Path == m.Path })
	if i < 0 {
		return nil
	}
	odd := map[string]bool{}
	for _, line := range m.Odd {
		odd[strings.TrimSuffix(line, "\n")] = true
	}
	return slices.DeleteFunc(numbered(b.Files[i].Content), func(l shapeLine) bool { return !odd[l.text] })
}

func numbered(content []byte) []shapeLine {
	var out []shapeLine
	for line := range haproxycfg.Lines(content) {
		out = append(out, shapeLine{line.Number, string(line.Text)})
	}
	return out
}

// firstDifference returns the first line that differs, and whether it is a line of the first side that the
// second side does not have.
func firstDifference(before, after []shapeLine) (line shapeLine, old, differ bool) {
	for i, line := range after {
		switch {
		case i >= len(before):
			return line, false, true
		case before[i].text == line.text:
		case goes(before[i:], after[i:]):
			return before[i], true, true
		default:
			return line, false, true
		}
	}
	if len(before) > len(after) {
		return before[len(after)], true, true
	}
	return shapeLine{}, false, false
}

// goes reports whether the first line was removed, rather than changed or preceded by a new one.
func goes(before, after []shapeLine) bool {
	return len(before) > len(after) && len(before) > 1 && before[1].text == after[0].text
}

// classifyFiles finds the first file that one of the two does not have. Its content may be
// a key, and is not shown.
func classifyFiles(from, to Bound) Classified {
	one := func(a, b []File) (File, bool) {
		has := make(map[string]bool, len(b)) // there may be thousands of certificates
		for _, f := range b {
			has[f.Path] = true
		}
		i := slices.IndexFunc(a, func(f File) bool { return !has[f.Path] })
		if i < 0 {
			return File{}, false
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
	out := Classified{Verdict: v, Old: old, File: snapshots.ConfigFile, Line: number}
	for line := range haproxycfg.Lines(b.Config) {
		if line.Number == number {
			out.Text = b.Redact(string(line.Text))
		}
	}
	return out
}

// shapeLine is a line of a bound configuration, reduced to what needs a reload to change.
type shapeLine struct {
	number int // from 1
	text   string
}

// shapeLines returns the lines that count for the shape.
func (b Bound) shapeLines() []shapeLine {
	var out []shapeLine
	servers, static := b.Servers, b.static()
	for line := range haproxycfg.Lines(b.Config) {
		number, text := line.Number, string(withoutEntries(line.Text, b.Maps))
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
	for line := range haproxycfg.Lines(b.Config) {
		if b.joins(line.Number) && bytes.HasPrefix(line.Text, []byte("    server ")) {
			out = append(out, line.Number)
		}
	}
	return out
}

// source returns the line of the snapshot that a line comes from, or 0.
func (b Bound) source(number int) int {
	if number < 1 || number > len(b.Lines) {
		return 0
	}
	return b.Lines[number-1]
}

// begins reports whether a line is a directive that other lines were joined to, and joins reports whether it is
// one of those other lines.
func (b Bound) begins(number int) bool {
	return b.source(number) == b.source(number+1) && !b.joins(number)
}

func (b Bound) joins(number int) bool {
	return b.source(number) != 0 && b.source(number) == b.source(number-1)
}

// shapeText returns the server's line without what can be changed at run time.
func (s Server) shapeText(line string, static map[string]bool) string {
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
