package validate

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
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

// has reports whether HAProxy reads a line of a file: of the bound configuration, or of one beside it.
func (m lineMap) has(file string, line int) bool {
	if file == stagedConfig {
		return 1 <= line && line <= len(m.bound.Lines)
	}
	for _, f := range m.bound.Files {
		if f.Path == file {
			return 1 <= line && line <= 1+bytes.Count(f.Content, []byte("\n"))
		}
	}
	return false
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
// will not run: about its processors, name servers that it cannot reach, and, from 3.4 on, how long it takes to hash a password,
// which a busy machine takes long for. Passwords of Secrets are not among those that are checked.
var ofThisMachine = regexp.MustCompile(`^This configuration (enables \d+ threads running on|binds \d+ threads to) a total of \d+ CPUs|^resolvers '[^']*': can't connect socket for nameserver |^the hash algorithm used for this password takes \d+ milliseconds to verify`)

// verdict turns HAProxy's messages into faults and warnings.
func (m lineMap) verdict(messages []message) Verdict {
	var v Verdict
	// Names of files in the staging directory become those that users know.
	var pairs []string
	for _, f := range m.bound.Files {
		pairs = append(pairs, f.Path, f.Source)
	}
	names := strings.NewReplacer(pairs...)
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

// HAProxy stops at the first error of some kinds. Then a mistake in many objects would cost one check for each of them. But
// HAProxy would refuse every later backend with the same text for the same reason. So these backends are found without
// another check.
//
// That holds if the refused backend is the first with its text. HAProxy may refuse a later one for something that an
// earlier one has, such as an id; then the earlier one is sound.

// alike are the backends with the same text, apart from their names and Services, in the order of the file.
type alike map[string][]haproxycfg.Section

// newAlike sorts the backends of a haproxy.cfg by their text.
func newAlike(config []byte) alike {
	out := alike{}
	for s, defaults := range sections(config) {
		if s.Keyword == "backend" {
			key := textOf(s, defaults)
			out[key] = append(out[key], s)
		}
	}
	return out
}

// sections yields the sections of a haproxy.cfg, each with its defaults: the name that it gives, or the line of those before
// it. HAProxy may read their lines again for each backend, such as default-server.
func sections(config []byte) iter.Seq2[haproxycfg.Section, string] {
	return func(yield func(haproxycfg.Section, string) bool) {
		before := 0
		for s := range haproxycfg.Sections(config) {
			defaults := s.From
			if defaults == "" {
				defaults = fmt.Sprint("line ", before)
			}
			if s.Keyword == "defaults" {
				before = s.Head.Number
			}
			if !yield(s, defaults) {
				return
			}
		}
	}
}

// textOf returns everything that HAProxy reads of a backend, except its name and the Service of its servers, which a
// directive names. Comments and blank lines count as empty lines; those at the end are left out.
func textOf(s haproxycfg.Section, defaults string) string {
	var b strings.Builder
	b.WriteString(defaults)
	for _, line := range s.Lines {
		text := bytes.TrimLeft(line.Text, haproxycfg.Blanks) // at its end, a blank may be escaped
		if directive, ok := bind.DirectiveText(line.Text); ok {
			if words := strings.Fields(directive); len(words) > 1 && words[0] == "servers" {
				_, options, _ := strings.Cut(strings.TrimPrefix(directive, "servers"), words[1])
				directive = "servers" + options
			}
			text = []byte("#hapsnap " + directive)
		} else if bytes.HasPrefix(text, []byte("#")) {
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

// plainHead matches the head of a backend that HAProxy takes without a look at its name.
var plainHead = regexp.MustCompile(`^backend [A-Za-z0-9._:-]+( from [A-Za-z0-9._:-]+)?$`)

// wordForm matches whatever could be the name of a backend.
var wordForm = regexp.MustCompile(`[A-Za-z0-9._:-]+`)

// onePerText returns a haproxy.cfg with one backend of each text, and empty lines in place of the others, so that the
// remaining lines keep their numbers. HAProxy checks it in a fraction of the time, and would say the same about the
// others: see [alike].
//
// A backend stays if HAProxy may report something about it alone: it has an id, which must be unique; another backend has
// its name; its head has unusual characters; or another line names it, such as use_backend or track. If the file has
// conditional lines, all backends stay.
func onePerText(config []byte) []byte {
	names, used := map[string]int{}, map[string]bool{}
	var backends []haproxycfg.Section
	var defaultsOf []string // of each backend
	for s, defaults := range sections(config) {
		for _, line := range s.Lines {
			if bytes.HasPrefix(bytes.TrimLeft(line.Text, haproxycfg.Blanks), []byte(".")) {
				return config
			}
		}
		if s.Keyword == "backend" {
			names[s.Name]++
			backends, defaultsOf = append(backends, s), append(defaultsOf, defaults)
			continue
		}
		names[s.Name]++ // a listen section is a backend too
		use(used, s)
	}
	known, others := map[string]bool{}, backends[:0]
	for i, s := range backends {
		text := textOf(s, defaultsOf[i])
		if known[text] && names[s.Name] == 1 && plainHead.Match(s.Head.Text) && !hasID(s) {
			others = append(others, s)
			continue
		}
		known[text] = true
		use(used, s)
	}
	lines := bytes.SplitAfter(config, []byte("\n"))
	for _, s := range others {
		if used[s.Name] {
			continue
		}
		lines[s.Head.Number-1] = []byte("\n")
		for _, line := range s.Lines {
			lines[line.Number-1] = []byte("\n")
		}
	}
	return bytes.Join(lines, nil)
}

// use takes the words of a section's lines, any of which may be the name of a backend.
func use(used map[string]bool, s haproxycfg.Section) {
	for _, line := range s.Lines {
		if text := bytes.TrimLeft(line.Text, haproxycfg.Blanks); !bytes.HasPrefix(text, []byte("#")) {
			for _, word := range wordForm.FindAll(text, -1) {
				used[string(word)] = true
			}
		}
	}
}

// hasID reports whether a line of a section gives something a number or a name that only one may have.
func hasID(s haproxycfg.Section) bool {
	for _, line := range s.Lines {
		if !bytes.Contains(line.Text, []byte("id")) && !bytes.ContainsAny(line.Text, `\'"`) {
			continue // the words need not be read
		}
		if words := line.Texts(); slices.Contains(words, "id") || slices.Contains(words, "guid") {
			return true
		}
	}
	return false
}
