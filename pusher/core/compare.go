package core

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The values that HAProxy uses for checks if the section sets none.
const (
	defaultInter = 2 * time.Second
	defaultFall  = 3
)

// outlineMemo remembers the outline of the last haproxy.cfg that was a target, which is the next good one. Most
// snapshots change only maps.
type outlineMemo struct {
	config  []byte
	outline outline
}

func (m *outlineMemo) of(config []byte) outline {
	if m.config != nil && bytes.Equal(m.config, config) {
		return m.outline
	}
	return readOutline(config)
}

// compareBackends returns the backends of a good snapshot, and what a target changes for each. A
// backend is Changed if its section, its defaults, global, resolvers, or a file or section that it
// names differs. It is Reached by a change of frontends or maps that concerns requests to it. A
// changed line of a frontend that names no backend, such as of a header, concerns all backends.
func (m *outlineMemo) compareBackends(good, target snapshots.Snapshot) map[string]rollout.Backend {
	was := m.of(good.Config())
	is := was // where only maps and other files change
	if !bytes.Equal(good.Config(), target.Config()) {
		is = m.of(target.Config())
	}
	m.config, m.outline = target.Config(), is
	c := comparing{was: was, is: is, out: map[string]rollout.Backend{}}
	common := was.common() != is.common()
	for name, s := range was.backends {
		other, kept := is.backends[name]
		c.out[name] = rollout.Backend{Changed: common || !kept || s.text() != other.text(), Check: s.checkTime()}
	}
	// Frontends that are new or gone change which requests reach a backend.
	names := maps.Clone(c.was.frontends)
	maps.Copy(names, c.is.frontends)
	for name := range names {
		var a, b []string
		if s := c.was.frontends[name]; s != nil {
			a = s.lines()
		}
		if s := c.is.frontends[name]; s != nil {
			b = s.lines()
		}
		c.reached(differing(a, b))
	}
	c.named()
	c.files(good.Files, target.Files)
	if c.all {
		for name, b := range c.out {
			b.Reached = true
			c.out[name] = b
		}
	}
	return c.out
}

// comparing holds a comparison of two configurations while it is made.
type comparing struct {
	was, is outline
	out     map[string]rollout.Backend
	all     bool // a change concerns requests to all backends
}

// named compares sections that other sections name, such as user lists and applications.
func (c *comparing) named() {
	was, is := c.was.texts(), c.is.texts()
	sections, changed := maps.Clone(was), map[string]bool{}
	maps.Copy(sections, is)
	for section := range sections {
		if _, name, _ := strings.Cut(section, " "); name != "" && was[section] != is[section] {
			changed[name] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	names := func(s *configSection) bool {
		return slices.ContainsFunc(strings.FieldsFunc(s.text(), betweenWords), func(word string) bool { return changed[word] })
	}
	for _, b := range c.backendsWith(names) {
		c.change(b)
	}
	c.all = c.all || c.was.inFrontends(names)
}

// backendsWith returns the backends whose section in the good snapshot matches.
func (c *comparing) backendsWith(is func(*configSection) bool) (out []string) {
	for name := range c.out {
		if is(c.was.backends[name]) {
			out = append(out, name)
		}
	}
	return out
}

func (c *comparing) change(backend string) {
	b := c.out[backend]
	b.Changed = true
	c.out[backend] = b
}

// files compares files. A difference concerns the backends that name the file, or the requests that
// frontends handle with it.
func (c *comparing) files(was, is []snapshots.File) {
	before := map[string][]byte{}
	for _, f := range was {
		before[f.Path] = f.Content
	}
	changed := map[string][2][]byte{}
	for _, f := range is {
		if old, there := before[f.Path]; !there || !bytes.Equal(old, f.Content) {
			changed[f.Path] = [2][]byte{old, f.Content}
		}
		delete(before, f.Path)
	}
	for path, old := range before {
		changed[path] = [2][]byte{old, nil}
	}
	delete(changed, snapshots.ConfigFile)
	delete(changed, snapshots.ManifestFile)
	delete(changed, snapshots.EndpointsFile)
	for path, contents := range changed {
		names := func(s *configSection) bool { return strings.Contains(s.text(), path) }
		backends := c.backendsWith(names)
		for _, b := range backends {
			c.change(b)
		}
		switch {
		case len(backends) > 0 && !c.was.inFrontends(names):
		case strings.HasPrefix(path, "maps/"):
			c.reached(differing(strings.Split(string(contents[0]), "\n"), strings.Split(string(contents[1]), "\n")))
		default:
			c.all = true
		}
	}
}

// reached marks the backends that lines name. A line that names no backend concerns all of them.
func (c *comparing) reached(lines []string) {
	for _, line := range lines {
		named := false
		for _, word := range strings.FieldsFunc(line, betweenWords) {
			if b, known := c.out[word]; known {
				b.Reached, named = true, true
				c.out[word] = b
			}
			named = named || c.is.backends[word] != nil // a backend that only the target has
		}
		c.all = c.all || (!named && strings.TrimSpace(line) != "")
	}
}

// betweenWords reports whether a rune separates names in a line, also in arguments such as that of
// http_auth.
func betweenWords(r rune) bool { return strings.ContainsRune(" \t\n\",(){}'", r) }

// differing returns the lines that one of two lists has more often than the other, sorted.
func differing(a, b []string) []string {
	count := map[string]int{}
	for _, line := range a {
		count[line]++
	}
	for _, line := range b {
		count[line]--
	}
	var out []string
	for _, line := range slices.Sorted(maps.Keys(count)) {
		if count[line] != 0 {
			out = append(out, line)
		}
	}
	return out
}

// outline is a haproxy.cfg divided into sections.
type outline struct {
	backends, frontends map[string]*configSection // a listen is both
	others              []*configSection
}

// configSection is a section and the defaults that it inherits.
type configSection struct {
	keyword string
	name    string
	own     []string // its lines, without comments other than directives
	takes   *configSection

	whole string        // the cached result of text
	check time.Duration // that of checkTime, 0 if it was not asked for
}

// readOutline reads a haproxy.cfg that HAProxy has accepted.
func readOutline(config []byte) outline {
	out := outline{backends: map[string]*configSection{}, frontends: map[string]*configSection{}}
	defaults := map[string]*configSection{}
	var last *configSection
	for read := range haproxycfg.Sections(config) {
		section := &configSection{keyword: read.Keyword, takes: last}
		for _, line := range read.Lines {
			if text := writtenWords(line); text != "" {
				section.own = append(section.own, text)
			}
		}
		if read.From != "" {
			section.takes = defaults[read.From]
		}
		switch read.Keyword {
		case "":
		case "backend":
			out.backends[read.Name] = section
		case "frontend":
			out.frontends[read.Name] = section
		case "listen":
			out.backends[read.Name], out.frontends[read.Name] = section, section
		case "defaults":
			if read.From == "" {
				section.takes = nil
			}
			defaults[read.Name], last = section, section
		default:
			section.takes, section.name = nil, read.Name
			out.others = append(out.others, section)
		}
	}
	return out
}

// writtenWords returns the words of a line as they are written, with one space between them. For a
// comment it returns "", unless it is a directive.
func writtenWords(line haproxycfg.Line) string {
	if text := bytes.Trim(line.Text, " \t\n"); len(text) > 0 && isPlain(text) {
		return string(text) // nearly all lines
	}
	if line.First() == "" {
		directive, ok := bind.DirectiveText(line.Text)
		if !ok {
			return ""
		}
		return strings.Join(append([]string{"#hapsnap"}, strings.Fields(directive)...), " ")
	}
	var out []string
	for _, word := range line.Words() {
		out = append(out, string(line.Text[word.Start:word.End]))
	}
	return strings.Join(out, " ")
}

// isPlain reports whether a line without blanks around it is its words, with one space between them.
func isPlain(line []byte) bool {
	return line[0] != '[' && !bytes.ContainsAny(line, "\"'\\#$\t\v\f\r\n\x00") && !bytes.Contains(line, []byte("  "))
}

// lines returns the lines of the section, those of its defaults first.
func (s *configSection) lines() []string {
	if s.takes == nil {
		return s.own
	}
	return append(slices.Clone(s.takes.lines()), s.own...)
}

func (s *configSection) text() string {
	if s.whole == "" {
		s.whole = strings.Join(s.lines(), "\n")
	}
	return s.whole
}

// texts returns the text of the sections that others can name, by keyword and name. It leaves out
// the common sections.
func (o outline) texts() map[string]string {
	out := map[string]string{}
	for _, s := range o.others {
		if !s.isCommon() {
			out[s.keyword+" "+s.name] += s.text() + "\n"
		}
	}
	return out
}

func (o outline) inFrontends(is func(*configSection) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(o.frontends)), is)
}

// common returns the text of the sections on which the servers of all backends depend.
func (o outline) common() string {
	var b strings.Builder
	for _, s := range o.others {
		if s.isCommon() {
			b.WriteString(s.keyword + "\n" + s.text() + "\n")
		}
	}
	return b.String()
}

func (s *configSection) isCommon() bool {
	return slices.Contains([]string{"global", "resolvers", "crt-store"}, s.keyword)
}

// checkTime returns how long a dead server of the section may count as up: the time of the checks
// that have to fail, and of one more, since checks do not begin at once.
func (s *configSection) checkTime() time.Duration {
	if s.check == 0 {
		s.check = s.readCheckTime()
	}
	return s.check
}

func (s *configSection) readCheckTime() time.Duration {
	inter, fall := time.Duration(0), 0
	for _, line := range s.lines() {
		switch first, _, _ := strings.Cut(line, " "); first {
		case "server", "default-server", "#hapsnap", "server-template":
		default:
			continue
		}
		words := strings.Fields(line)
		for i, word := range words[:len(words)-1] {
			switch word {
			case "inter":
				inter = max(inter, haproxycfg.Duration(words[i+1]))
			case "fall":
				if n, err := strconv.Atoi(words[i+1]); err == nil {
					fall = max(fall, n)
				}
			}
		}
	}
	if inter == 0 {
		inter = defaultInter
	}
	if fall == 0 {
		fall = defaultFall
	}
	return time.Duration(fall+1)*inter + time.Second // HAProxy reports times in whole seconds
}
