package compiler

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// maxNamed is the largest number of objects that a subject names.
const maxNamed = 2

// Subject says in a few words how a result differs from the snapshot before it, such as "+2 backends, ~1 route (Ingress
// shop/web)". The zero Snapshot means that there is none before it. The result is "no change" only if both have the
// same content.
func Subject(previous snapshots.Snapshot, r Result) string {
	was, is := differing(previous.Files, r.Draft.Files)
	before, after := outline(was, previous.Manifest.Spec.Certificates), outline(is, r.Draft.Certificates)
	var parts []string
	var changed []unit
	for _, kind := range []string{"backend", "route", "certificate"} {
		d := compare(before[kind], after[kind])
		parts = append(parts, d.counts(kind)...)
		changed = append(changed, d.units...)
	}
	if len(previous.Files) > 0 { // without a snapshot before, all of them are new
		for _, kind := range []string{"section", "file"} {
			parts = append(parts, compare(before[kind], after[kind]).names()...)
		}
		if to := r.Draft.Recipients; len(to) > 0 && !slices.Equal(to, previous.Manifest.Spec.Recipients) {
			parts = append(parts, "sealed to other recipients")
		}
	}
	if len(parts) == 0 && len(previous.Files) > 0 { // say what changed in files that otherwise follow from other changes
		d := compare(before["host"], after["host"])
		parts, changed = d.hosts(), d.units
	}
	switch {
	case len(parts) == 0 && len(previous.Files) == 0:
		return "first snapshot, without any route"
	case len(parts) == 0:
		parts = rest(previous, r.Draft)
	}
	return cmp.Or(strings.Join(parts, ", "), "no change") + objectsOf(changed, r.Artifact)
}

// rest returns which files and references to certificates differ. It is used if no unit differs.
func rest(previous snapshots.Snapshot, d snapshots.Draft) []string {
	whole := func(files []snapshots.File, certificates []snapshots.CertificateRef) map[string]unit {
		out := map[string]unit{}
		for _, f := range files {
			out[f.Path] = unit{name: f.Path, content: string(f.Content)}
		}
		for _, c := range certificates {
			name := "certificate " + c.File
			out[name] = unit{name: name, content: fmt.Sprint(c.Secret, c.Use, c.Mode, c.Version)}
		}
		return out
	}
	return compare(whole(previous.Files, previous.Manifest.Spec.Certificates), whole(d.Files, d.Certificates)).names()
}

// unit is a part of a snapshot that is compared as a whole.
type unit struct {
	name, content string
	file          string
	first, last   int // its lines in the file
}

// excerpt is a file without some lines at its beginning, and perhaps without some at its end.
type excerpt struct {
	snapshots.File
	skipped int // how many lines are missing at the beginning
}

// differing returns the files that differ between both sides, from about the first different line to the last one. Most
// changes are small, so most lines need not be looked at.
func differing(before, after []snapshots.File) (was, is []excerpt) {
	old := map[string][]byte{}
	for _, f := range before {
		old[f.Path] = f.Content
	}
	for _, f := range after {
		content, ok := old[f.Path]
		if !ok {
			is = append(is, excerpt{File: f})
			continue
		}
		delete(old, f.Path)
		if bytes.Equal(content, f.Content) {
			continue
		}
		head, tail := commonParts(content, f.Content, f.Path == snapshots.ConfigFile)
		skipped := bytes.Count(content[:head], []byte("\n"))
		was = append(was, excerpt{snapshots.File{Path: f.Path, Content: content[head : len(content)-tail]}, skipped})
		is = append(is, excerpt{snapshots.File{Path: f.Path, Content: f.Content[head : len(f.Content)-tail]}, skipped})
	}
	for path, content := range old {
		was = append(was, excerpt{File: snapshots.File{Path: path, Content: content}})
	}
	return was, is
}

// commonParts returns how many bytes two texts have in common at their beginning and at their end. It only counts whole
// lines, or whole sections if bySection is set.
func commonParts(a, b []byte, bySection bool) (head, tail int) {
	ends := func(line []byte) bool {
		_, begins := haproxycfg.BeginSection(haproxycfg.Line{Text: line})
		return begins || !bySection
	}
	shorter := min(len(a), len(b))
	for head < shorter && a[head] == b[head] {
		head++
	}
	head = bytes.LastIndexByte(a[:head], '\n') + 1
	if bySection { // begin at the section of the first difference, or at the one before it
		for head > 0 {
			start := bytes.LastIndexByte(a[:head-1], '\n') + 1
			line := a[start : head-1]
			head = start
			if ends(line) {
				break
			}
		}
	}
	for tail < shorter-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	for rest := a[len(a)-tail:]; ; {
		_, after, found := bytes.Cut(rest, []byte("\n"))
		if line, _, _ := bytes.Cut(after, []byte("\n")); !found || len(after) == 0 || ends(line) {
			return head, len(after)
		}
		rest = after
	}
}

// outline divides a snapshot into units, by kind and name.
func outline(files []excerpt, certificates []snapshots.CertificateRef) map[string]map[string]unit {
	out := map[string]map[string]unit{}
	add := func(kind string, u unit) {
		if out[kind] == nil {
			out[kind] = map[string]unit{}
		}
		if twin, ok := out[kind][u.name]; ok { // sections such as defaults may have the same name
			u.content, u.first = twin.content+u.content, twin.first
		}
		out[kind][u.name] = u
	}
	for _, f := range files {
		switch path := generic(f.Path); path {
		case snapshots.ConfigFile:
			sections(f, add)
		case "maps/exact.map", "maps/prefix.map", "maps/sni_*":
			mapEntries(f, "route", add)
		case hostMap:
			mapEntries(f, "host", add)
		case "maps/rewrite.map", "maps/terminated_*", "files/https.crtlist", "files/sni_*":
			// These follow from routes, filters and certificates.
		default:
			if snapshots.IsSealed(f.Path) {
				continue // the certificate shows what changed
			}
			add("file", unit{name: f.Path, content: string(f.Content)})
		}
	}
	for _, c := range certificates {
		if c.File == render.Fallback {
			continue
		}
		add("certificate", unit{name: c.File, content: fmt.Sprint(c.Secret, c.Use, c.Mode, c.Version)})
	}
	return out
}

// generic replaces the name of a listener in a path, so that the files of all listeners have the same name.
func generic(path string) string {
	for _, prefix := range []string{"maps/sni_", "maps/terminated_", "files/sni_"} {
		if strings.HasPrefix(path, prefix) {
			return prefix + "*"
		}
	}
	return path
}

// sections splits haproxy.cfg into sections. Backends have a kind of their own.
func sections(f excerpt, add func(kind string, u unit)) {
	for section := range haproxycfg.Sections(f.Content) {
		kind := "section"
		switch {
		case section.Keyword == "", section.Keyword == "backend" && section.Name == templates.ReadyBackend: // the latter follows from the other backends
			continue
		case section.Keyword == "backend":
			kind = "backend"
		}
		u := unit{name: strings.TrimSpace(section.Keyword + " " + section.Name), file: f.Path, first: f.skipped + section.Head.Number}
		var content strings.Builder
		for _, line := range append([]haproxycfg.Line{section.Head}, section.Lines...) {
			if len(line.Text) > 0 {
				content.Write(line.Text)
				content.WriteByte('\n')
				u.last = f.skipped + line.Number
			}
		}
		u.content = content.String()
		add(kind, u)
	}
}

// hostMap has the hosts of all routes. It changes with the routes, so a subject names hosts only if nothing else
// differs. That happens if a host gets an additional name.
const hostMap = "maps/host.map"

// mapEntries divides a map into its entries.
func mapEntries(f excerpt, kind string, add func(kind string, u unit)) {
	number := f.skipped
	for line := range bytes.Lines(f.Content) {
		number++
		key, value, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if ok && !strings.HasPrefix(key, "#") {
			add(kind, unit{name: f.Path + " " + key, content: value, file: f.Path, first: number, last: number})
		}
	}
}

// delta is what changed among the units of a kind.
type delta struct {
	added, removed, changed []string
	units                   []unit // units that are new or different
}

func compare(before, after map[string]unit) delta {
	var d delta
	for _, name := range slices.Sorted(maps.Keys(after)) {
		old, ok := before[name]
		switch {
		case !ok:
			d.added = append(d.added, name)
		case old.content != after[name].content:
			d.changed = append(d.changed, name)
		default:
			continue
		}
		d.units = append(d.units, after[name])
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			d.removed = append(d.removed, name)
		}
	}
	return d
}

// counts returns texts such as "+2 backends".
func (d delta) counts(kind string) []string {
	var out []string
	for _, c := range []struct {
		sign string
		n    int
	}{{"+", len(d.added)}, {"-", len(d.removed)}, {"~", len(d.changed)}} {
		switch {
		case c.n == 1:
			out = append(out, c.sign+"1 "+kind)
		case c.n > 1:
			out = append(out, fmt.Sprintf("%s%d %ss", c.sign, c.n, kind))
		}
	}
	return out
}

// names returns texts such as "~frontend http". It is for kinds with few units.
func (d delta) names() []string {
	var out []string
	for _, c := range []struct {
		sign  string
		names []string
	}{{"+", d.added}, {"-", d.removed}, {"~", d.changed}} {
		for _, name := range c.names {
			out = append(out, c.sign+name)
		}
	}
	return out
}

// hosts returns texts such as "+2 hosts". It names the host if there is only one.
func (d delta) hosts() []string {
	parts := d.counts("host")
	var named []string
	for _, key := range slices.Concat(d.added, d.removed, d.changed) {
		named = append(named, strings.TrimPrefix(key, hostMap+" "))
	}
	if len(named) == 1 {
		if strings.HasPrefix(named[0], ".") {
			named[0] = "*" + named[0]
		}
		parts[0] += " " + named[0]
	}
	return parts
}

// objectsOf returns the objects that wrote the units, in brackets.
func objectsOf(units []unit, a render.Artifact) string {
	seen := map[diag.Object]bool{}
	for _, u := range units {
		for line := u.first; line <= u.last; line++ {
			for _, o := range a.Origin(u.file, line).Objects {
				seen[o.Object] = true
			}
		}
	}
	objects := slices.SortedFunc(maps.Keys(seen), diag.Object.Compare)
	var names []string
	for _, o := range objects[:min(len(objects), maxNamed)] {
		names = append(names, o.String())
	}
	switch more := len(objects) - maxNamed; {
	case len(objects) == 0:
		return ""
	case more > 0:
		return fmt.Sprintf(" (%s and %d more)", strings.Join(names, ", "), more)
	}
	return " (" + strings.Join(names, ", ") + ")"
}
