package validate

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The limits of a line of haproxy.cfg. The Dataplane API drops a longer line
// and everything after it; HAProxy reads no more words.
const (
	maxLine  = 65535
	maxWords = haproxycfg.MaxWords
)

// conditionals are the directives that the Dataplane API tears apart when it
// sorts lines.
var conditionals = map[string]bool{
	".if": true, ".elif": true, ".else": true, ".endif": true,
	".diag": true, ".notice": true, ".warning": true, ".alert": true,
}

// lineChecker makes our own checks of haproxy.cfg.
type lineChecker struct {
	seen   map[string]int // the line of each section
	faults []fault
}

// fault is a place in a file that is wrong.
type fault struct {
	line          int // from 1; 0 is the whole
	message, hint string
}

// checkLines returns the faults in the text of haproxy.cfg that HAProxy does not report.
func checkLines(config []byte) []fault {
	c := lineChecker{seen: map[string]int{}}
	number := 0
	for line := range bytes.Lines(config) {
		number++
		c.check(number, bytes.TrimSuffix(line, []byte("\n")))
	}
	if len(config) == 0 || config[len(config)-1] != '\n' {
		c.add(number, "is the last line and does not end with a line break", "")
	}
	return c.faults
}

func (c *lineChecker) add(line int, message, hint string) {
	c.faults = append(c.faults, fault{line, message, hint})
}

func (c *lineChecker) check(number int, line []byte) {
	if len(line) > maxLine {
		c.add(number, fmt.Sprintf("is %d bytes long: the Dataplane API drops a line of more than %d, and all after it", len(line), maxLine),
			"put lists into a map or a file")
		return
	}
	first := haproxycfg.FirstWord(line)
	switch {
	case conditionals[first]:
		c.add(number, first+" is not possible: the Dataplane API sorts lines, and would break the block", "use the templates' own if")
	case haproxycfg.BeginsSection(first):
		c.section(number, line)
	}
	if n := haproxycfg.CountWords(line); n > maxWords {
		c.add(number, fmt.Sprintf("has %d words: HAProxy reads %d of a line", n, maxWords), "use several lines, a map or a file")
	}
}

// section records a section. The Dataplane API keeps only one of each name.
func (c *lineChecker) section(number int, line []byte) {
	section, _ := haproxycfg.BeginSection(haproxycfg.Line{Number: number, Text: line})
	kind, name := section.Keyword, section.Name
	key := kind + " " + name
	if kind == "global" {
		key = kind
	}
	if first, ok := c.seen[key]; ok {
		c.add(number, fmt.Sprintf("the section %q already exists, in line %d: the Dataplane API would keep only one of them", key, first), "give it a name of its own")
		return
	}
	c.seen[key] = number
}

// maxDirectives is how many faulty directives one check reports.
const maxDirectives = 100

// directiveFaults returns the faulty directives. Binding names only the first: each is taken out to
// find the next, so that as many objects are left out at once.
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

// places adds text, template and objects to lines of an artifact.
type places struct {
	artifact render.Artifact
	lines    map[string][][]byte // of each file, once it was asked for
}

func newPlaces(a render.Artifact) places { return places{a, map[string][][]byte{}} }

// fault returns a fault at a line of a file; at line 0 it has no place.
func (p places) fault(path string, line int, message, hint string) render.Fault {
	return render.Fault{
		Message: message, Hint: hint, File: path, Line: line,
		Text: p.text(path, line), Origin: p.artifact.Origin(path, line),
	}
}

// text returns a line without the white space around it.
func (p places) text(path string, line int) string {
	if _, ok := p.lines[path]; !ok {
		content, _ := fileOf(p.artifact, path)
		p.lines[path] = bytes.Split(content, []byte("\n"))
	}
	if line < 1 || line > len(p.lines[path]) {
		return ""
	}
	return strings.TrimSpace(string(p.lines[path][line-1]))
}

// located turns faults of a file into faults of its templates and objects.
func (p places) located(path string, faults []fault) []render.Fault {
	out := make([]render.Fault, len(faults))
	for i, f := range faults {
		out[i] = p.fault(path, f.line, f.message, f.hint)
	}
	return out
}

func fileOf(a render.Artifact, path string) ([]byte, bool) {
	return snapshots.Snapshot{Files: a.Files}.File(path)
}

// lineMap leads from a line of the bound configuration to the line of the artifact that it came from,
// and so to its template and objects.
type lineMap struct {
	places places
	bound  bind.Bound
}

// source returns the file and line of the artifact for a place that HAProxy
// named: a line of the bound configuration, or of a file beside it.
func (m lineMap) source(file string, line int) (path string, sourceLine int) {
	if filepath.Base(file) == stagedConfig {
		if line < 1 || line > len(m.bound.Lines) {
			return snapshots.ConfigFile, 0
		}
		return snapshots.ConfigFile, m.bound.Lines[line-1]
	}
	for _, f := range m.bound.Files {
		if f.Path == file {
			return f.Source, line
		}
	}
	return "", 0
}

// located turns faults of the bound configuration into faults of the artifact.
func (m lineMap) located(faults []fault) []render.Fault {
	out := make([]fault, len(faults))
	for i, f := range faults {
		out[i] = f
		_, out[i].line = m.source(stagedConfig, f.line)
	}
	return m.places.located(snapshots.ConfigFile, out)
}

// ofThisMachine matches what HAProxy says about the machine that checks, on which the configuration
// will not run: about its processors, and name servers that it cannot reach.
var ofThisMachine = regexp.MustCompile(`^This configuration (enables \d+ threads running on|binds \d+ threads to) a total of \d+ CPUs|^resolvers '[^']*': can't connect socket for nameserver `)

// verdict turns HAProxy's messages into faults and warnings.
func (m lineMap) verdict(messages []message) Verdict {
	var v Verdict
	names := m.names()
	for _, msg := range messages {
		if ofThisMachine.MatchString(msg.Text) {
			continue
		}
		path, line := m.source(msg.File, msg.Line)
		f := m.places.fault(path, line, "haproxy: "+names.Replace(msg.Text), "")
		if msg.Level == "WARNING" {
			v.Warnings = append(v.Warnings, f)
		} else {
			v.Faults = append(v.Faults, f)
		}
	}
	return v
}

// names replaces the names of files in the staging directory with those that users know.
func (m lineMap) names() *strings.Replacer {
	var pairs []string
	for _, f := range m.bound.Files {
		pairs = append(pairs, f.Path, f.Source)
	}
	return strings.NewReplacer(pairs...)
}
