package validate

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// HAProxy ends at the first error of some kinds, so that a mistake that many objects make would cost a
// check for each of them. What HAProxy says of a backend, it would say of every later one with the same
// text: so the others are found without asking.
//
// That holds for the first backend with a text. A later one may be refused for what an earlier one
// has already, such as an id, and then the earlier one is sound.

// alike are the backends with the same text, but for their names and Services, in the order of the file.
type alike map[string][]haproxycfg.Section

// newAlike sorts the backends of a haproxy.cfg by their text.
func newAlike(config []byte) alike {
	out := alike{}
	for s := range haproxycfg.Sections(config) {
		if s.Keyword == "backend" {
			key := textOf(s)
			out[key] = append(out[key], s)
		}
	}
	return out
}

// textOf is all that HAProxy reads of a backend but for its name, and for the Service whose servers are
// put into it. Once they are, a comment names the Service. Comments and blank lines keep the place of a line and say nothing, so
// that those at the end are left out.
func textOf(s haproxycfg.Section) string {
	var b strings.Builder
	b.WriteString(s.From)
	for _, line := range s.Lines {
		text := bytes.TrimSpace(line.Text)
		if directive, ok := bytes.CutPrefix(text, []byte("#hapsnap servers ")); ok {
			_, text, _ = bytes.Cut(directive, []byte(" "))
			b.WriteString("\n#hapsnap servers")
		} else if bytes.HasPrefix(text, []byte("#")) && !bytes.HasPrefix(text, []byte("#hapsnap")) {
			text = nil
		}
		b.WriteByte('\n')
		b.Write(text)
	}
	return strings.TrimRight(b.String(), "\n")
}

// spread returns faults with those of the backends that have the same text as one at fault.
func (p places) spread(faults []render.Fault) []render.Fault {
	config, _ := fileOf(p.artifact, snapshots.ConfigFile)
	known := map[int]bool{}
	var inConfig []render.Fault
	for _, f := range faults {
		if f.File == snapshots.ConfigFile && f.Line > 0 {
			known[f.Line] = true
			inConfig = append(inConfig, f)
		}
	}
	if len(inConfig) == 0 {
		return faults
	}
	out := slices.Clone(faults)
	for _, backends := range newAlike(config) {
		first := backends[0]
		for _, f := range inConfig {
			at := f.Line - first.Head.Number // on the line with the name, the name may be what is wrong
			if at < 1 || at > len(first.Lines) {
				continue
			}
			for _, other := range backends[1:] {
				if line := other.Head.Number + at; !known[line] {
					known[line] = true
					message := strings.ReplaceAll(f.Message, "'"+first.Name+"'", "'"+other.Name+"'")
					out = append(out, p.fault(snapshots.ConfigFile, line, message, f.Hint))
				}
			}
		}
	}
	slices.SortStableFunc(out[len(faults):], func(a, b render.Fault) int { return a.Line - b.Line })
	return out
}
