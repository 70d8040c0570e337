package bind

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// MapEntry is a line of a map file.
type MapEntry struct {
	Key, Value string
}

// Map is a map whose entries can be changed in the running worker, which knows it by the
// path that it was loaded from.
type Map struct {
	Source  string // the path in the snapshot
	Path    string // absolute, see [File]
	Entries []MapEntry
}

// LogicalMap returns the base name of a map file in a snapshot from that on an instance:
// "host.map" for "host-3f2a91c4.map".
func LogicalMap(name string) string {
	stem, ext, _ := strings.Cut(name, ".")
	if cut := strings.LastIndexByte(stem, '-'); cut > 0 && len(stem)-cut == 9 {
		stem = stem[:cut]
	}
	return stem + "." + ext
}

// shapePath replaces the path of the map in the shape, whatever its entries are.
func (m Map) shapePath() string { return path.Join(path.Dir(m.Path), path.Base(m.Source)) }

// lookup matches what precedes the path of a map that is looked up by whole keys or by the
// longest prefix. HAProxy finds both in trees, where the order of entries does not matter;
// for all other look-ups it does.
var lookup = regexp.MustCompile(`(?:^|[^A-Za-z0-9_-])map(?:_(?:str|beg)(?:_(?:str|int))?)?\($`)

// changeableMaps returns the maps of a snapshot whose entries can be changed at run time,
// in the order in which haproxy.cfg first names them: maps that haproxy.cfg uses only for
// such look-ups, and whose entries are plain.
func changeableMaps(config []byte, files []File) []Map {
	var out []Map
	for _, name := range lookedUp(config) {
		i := slices.IndexFunc(files, func(f File) bool { return f.Kind == MapFile && f.Source == name })
		if i < 0 {
			continue
		}
		if entries, plain := ParseMap(files[i].Content); plain {
			out = append(out, Map{Source: name, Path: files[i].Path, Entries: entries})
		}
	}
	return out
}

// ChangeableMap reports whether the entries of a map of a snapshot can be changed at run
// time, see [Bound].Maps.
func ChangeableMap(config []byte, path string, content []byte) bool {
	_, plain := ParseMap(content)
	return plain && fileKind(path) == MapFile && slices.Contains(lookedUp(config), path)
}

// lookedUp returns the paths that haproxy.cfg uses only as maps of such look-ups, in the
// order in which it first names them.
func lookedUp(config []byte) []string {
	used := map[string]bool{} // and whether only so
	var order []string
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		_, directive := directiveText(line) // with options of server lines
		if !bytes.Contains(line, []byte(snapshots.MapsFolder)) || haproxycfg.FirstWord(line) == "" && !directive {
			continue
		}
		for token := range tokens(line) {
			name := string(line[token[0]:token[1]])
			only, known := used[name]
			if !known {
				order = append(order, name)
			}
			rest := line[token[1]:]
			used[name] = !directive && (only || !known) && lookup.Match(line[:token[0]]) && len(rest) > 0 && (rest[0] == ')' || rest[0] == ',')
		}
	}
	return slices.DeleteFunc(order, func(name string) bool { return !used[name] })
}

// MaxMapPayload is how many bytes of entries, with a newline each, can be added to a map of
// a worker at once. For more, the Dataplane API makes a new version of the map, without its
// present entries.
const MaxMapPayload = 8192

// ParseMap returns the entries of a map file in order, and whether each of them can be
// changed at run time. They cannot if a key occurs twice, if bytes have a meaning on
// HAProxy's socket, or if an entry is too long for one command.
func ParseMap(content []byte) (entries []MapEntry, plain bool) {
	text := string(content)
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, false
	}
	seen := make(map[string]bool, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		if !isPlainWord(key) || !isPlainWord(value) || seen[key] || len(line) >= MaxMapPayload {
			return nil, false
		}
		seen[key] = true
		entries = append(entries, MapEntry{key, value})
	}
	return entries, true
}

// isPlainWord reports whether a word needs no quoting on HAProxy's socket, and is not a
// reference, a version or the beginning of a payload there.
func isPlainWord(word string) bool {
	return word != "" && word[0] != '#' && word[0] != '@' && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\;<\"'", r)
	})
}

// entriesDigest digests the entries of maps, in whatever order these are.
func entriesDigest(maps []Map) snapshots.Digest {
	if len(maps) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, m := range slices.SortedFunc(slices.Values(maps), func(a, b Map) int { return cmp.Compare(a.Source, b.Source) }) {
		fmt.Fprintf(sum, "\x00map %s\n", m.Source)
		for _, e := range slices.SortedFunc(slices.Values(m.Entries), func(a, b MapEntry) int { return cmp.Compare(a.Key, b.Key) }) {
			fmt.Fprintf(sum, "%s %s\n", e.Key, e.Value)
		}
	}
	return snapshots.DigestOf(sum)
}

// withoutEntries returns a line of a bound configuration with the paths of maps as they
// count for the shape.
func withoutEntries(line []byte, maps []Map) []byte {
	for _, m := range maps {
		if path := []byte(m.Path); bytes.Contains(line, path) { // few lines do, and each replacement is a copy
			line = bytes.ReplaceAll(line, path, []byte(m.shapePath()))
		}
	}
	return line
}
