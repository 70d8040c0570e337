package validate

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// places gives lines of an artifact their text, templates and objects.
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

// located turns faults of a file into those of its templates and objects.
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

// lineMap leads from a line of the bound configuration to the line of the
// artifact that it came from, and so to its template and objects.
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

// located turns faults of the bound configuration into those of the artifact.
func (m lineMap) located(faults []fault) []render.Fault {
	out := make([]fault, len(faults))
	for i, f := range faults {
		out[i] = f
		_, out[i].line = m.source(stagedConfig, f.line)
	}
	return m.places.located(snapshots.ConfigFile, out)
}

// ofThisMachine matches what HAProxy says of the machine that checks, where the
// configuration will not run.
var ofThisMachine = regexp.MustCompile(`^This configuration enables \d+ threads running on a total of \d+ CPUs`)

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

// names gives the files of the staging directory the names that users know.
func (m lineMap) names() *strings.Replacer {
	var pairs []string
	for _, f := range m.bound.Files {
		pairs = append(pairs, f.Path, f.Source)
	}
	return strings.NewReplacer(pairs...)
}
