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
	// Odd are the lines that only a reload changes, see [ParseMap]. They are part of the shape: a worker of the
	// same shape has loaded them, and they must not change in it.
	Odd []string
}

// OddKeys returns the keys under which a worker may report the odd lines.
func (m Map) OddKeys() map[string]bool {
	keys := map[string]bool{}
	for _, line := range m.Odd {
		for _, key := range keysOf(line) {
			keys[key] = true
		}
	}
	return keys
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

// changeableMaps returns the maps of a snapshot whose entries can be changed at run time, in the order in
// which haproxy.cfg first looks into them: maps that haproxy.cfg uses only for such look-ups, which are those of [lookedUp].
func changeableMaps(lookedUp []string, files []File) []Map {
	var out []Map
	for _, name := range lookedUp {
		i := slices.IndexFunc(files, func(f File) bool { return f.Kind == MapFile && f.Source == name })
		if i < 0 || !isReadable(files[i].Content) {
			continue
		}
		entries, odd := ParseMap(files[i].Content)
		out = append(out, Map{Source: name, Path: files[i].Path, Entries: entries, Odd: odd})
	}
	return out
}

// ChangeableMap reports whether a file of two snapshots is a map on both sides, and all that differs can be
// changed at run time, see [Bound].Maps. The first element of a side is its haproxy.cfg, the second the file.
func ChangeableMap(path string, from, to [2][]byte) bool {
	if fileKind(path) != MapFile {
		return false
	}
	var odd [2][]string
	for i, side := range [][2][]byte{from, to} {
		if !isReadable(side[1]) || !slices.Contains(lookedUp(side[0]), path) {
			return false
		}
		_, odd[i] = ParseMap(side[1])
	}
	return slices.Equal(odd[0], odd[1])
}

// lookedUp returns the paths that haproxy.cfg uses only as maps of such look-ups, in the
// order in which it first does.
func lookedUp(config []byte) []string {
	used := map[string]bool{} // and whether only so
	var order []string
	for l := range haproxycfg.Lines(config) {
		if !bytes.Contains(l.Text, []byte(snapshots.MapsFolder)) {
			continue
		}
		text := l.Text
		options, directive := DirectiveText(l.Text) // of server lines
		if directive {
			text = []byte(options)
		}
		oddFrom := firstOdd(text)
		for token, use := range mapUses(text) {
			odd := oddFrom <= token[0]
			if !odd && (use == mapText || use == mapNamed && !directive) {
				continue
			}
			name := string(text[token[0]:token[1]])
			only, known := used[name]
			if !known {
				order = append(order, name)
			}
			used[name] = !directive && !odd && (only || !known) && use == mapLookup
		}
	}
	return slices.DeleteFunc(order, func(name string) bool { return !used[name] })
}

// firstOdd returns where in a line the first word begins that mapUses may read in another way than HAProxy, or the end of the line:
// one with quotes or escapes in its middle, as in set-"map(maps/x.map)", or with an environment variable; and a keyword in quotes,
// which counts as text elsewhere. What mapUses says of the words before is right.
func firstOdd(line []byte) int {
	if !bytes.ContainsAny(line, "\"'\\$") {
		return len(line)
	}
	for _, w := range (haproxycfg.Line{Text: line}).Words() {
		raw := line[w.Start:w.End]
		whole := raw[0] == '"' && bytes.Count(raw, []byte{'"'}) == 2 && !bytes.Contains(raw, []byte{'\\'}) || raw[0] == '\'' && bytes.Count(raw, []byte{'\''}) == 2
		whole = whole && len(raw) > 1 && raw[len(raw)-1] == raw[0]
		if w.Variable || w.Quoted && (!whole || strings.HasPrefix(w.Text, "-") || slices.Contains(conditionWords, strings.TrimLeft(w.Text, "!"))) {
			return w.Start
		}
	}
	return len(line)
}

// conditionWords have a meaning between the words of a line.
var conditionWords = []string{"{", "}", "if", "unless", "file", "lf-file", "errorfile"}

// mapUse says what the path of a map is where a line of haproxy.cfg has it.
type mapUse int

const (
	mapText   mapUse = iota // text that HAProxy does not take for a file
	mapNamed                // maybe a file: there may be unknown keywords that take one
	mapLookup               // a map that is looked up by whole keys or by the longest prefix
	mapFile                 // a file that is used in another way
)

var (
	// lookup matches what precedes the path of a map that is looked up by whole keys or by the longest prefix.
	// HAProxy keeps both in trees, where the order of entries does not matter. For all other look-ups it does.
	lookup = regexp.MustCompile(`(?:^|[^A-Za-z0-9_.-])map(?:_(?:str|beg)(?:_(?:str|int))?)?\($`)
	// fileArgument matches what precedes the file of another converter, of an action such as set-map, and of a
	// converter in Lua.
	fileArgument = regexp.MustCompile(`[A-Za-z0-9_.-]*(?:map|acl|lua)[A-Za-z0-9_.-]*\([ \\"']*$`)
)

// mapUses yields the tokens of a line that are paths of maps, and their uses.
func mapUses(line []byte) func(yield func([2]int, mapUse) bool) {
	return func(yield func([2]int, mapUse) bool) {
		var words []haproxycfg.Word
		var roles []wordRole
		for token := range tokens(line) {
			if !bytes.HasPrefix(line[token[0]:token[1]], []byte(snapshots.MapsFolder)) {
				continue
			}
			if words == nil {
				words = haproxycfg.Line{Text: line}.Words()
				roles = rolesOf(words)
			}
			use := mapText // of a comment
			if i := slices.IndexFunc(words, func(w haproxycfg.Word) bool { return w.Start <= token[0] && token[1] <= w.End }); i >= 0 {
				use = useIn(line, token, words[i], roles[i])
			}
			if !yield(token, use) {
				return
			}
		}
	}
}

// useIn returns the use of the path of a map in a word.
func useIn(line []byte, token [2]int, w haproxycfg.Word, role wordRole) mapUse {
	before, after := line[w.Start:token[0]], line[token[1]:w.End]
	alone := w.Text == string(line[token[0]:token[1]])
	switch {
	case role == textWord, role == formatWord && !inExpression(before):
		return mapText
	case role == fileWord:
		return mapFile
	case role == argumentWord && w.Quoted && !alone:
		return mapText
	case lookup.Match(before) && len(after) > 0 && (after[0] == ')' || after[0] == ','):
		return mapLookup
	case fileArgument.Match(before):
		return mapFile
	case w.Quoted && !alone && !bytes.HasSuffix(bytes.TrimRight(before, ` \"'`), []byte("(")):
		return mapText
	}
	return mapNamed
}

// inExpression reports whether the end of a format is within %[…], rather than behind %%[.
func inExpression(before []byte) bool {
	for i := 1; i < len(before); i++ {
		if before[i] != '[' || before[i-1] != '%' {
			continue
		}
		run := i - len(bytes.TrimRight(before[:i], "%"))
		if run%2 == 1 {
			return true
		}
	}
	return false
}

// wordRole says what HAProxy reads in a word of a line.
type wordRole int

const (
	anyWord      wordRole = iota // maybe an expression
	textWord                     // text or a pattern
	formatWord                   // text, with expressions in %[…]
	fileWord                     // the name of a file with patterns
	argumentWord                 // an argument for Lua
)

// actions are the actions whose arguments are text, with the number of arguments before the first format.
var actions = map[string]int{
	"set-header": 1, "add-header": 1, "replace-header": 2, "replace-value": 2, "early-hint": 1,
	"replace-path": 1, "replace-pathq": 1, "replace-uri": 1,
	"set-path": 0, "set-pathq": 0, "set-query": 0, "set-uri": 0, "set-method": 0, "set-var-fmt": 0,
	"redirect": 0, "return": 0, "deny": 0, "tarpit": 0, "send": 0,
	"del-header": allText, "auth": allText,
}

const allText = 1 << 10

// rolesOf returns the roles of the words of a line.
func rolesOf(words []haproxycfg.Word) []wordRole {
	roles := make([]wordRole, len(words))
	if len(words) > 0 && words[0].Text == "acl" {
		if len(words) > 3 {
			patterns(words[3:], roles[3:])
		}
		return roles
	}
	for i := argumentRoles(words, roles); i < len(words); i++ {
		w := words[i]
		if w.Quoted || strings.TrimLeft(w.Text, "!") != "{" {
			continue
		}
		end := i + 1
		for end < len(words) && (words[end].Quoted || words[end].Text != "}") {
			end++
		}
		if i+2 < end {
			patterns(words[i+2:end], roles[i+2:end])
		}
		i = end
	}
	return roles
}

// argumentRoles sets the roles of the arguments of an action, and returns where its condition begins.
func argumentRoles(words []haproxycfg.Word, roles []wordRole) int {
	at := 0
	if len(words) > 1 && strings.HasPrefix(words[0].Text, "http-") {
		at = 1
	}
	if len(words) == 0 {
		return 0
	}
	action, _, _ := strings.Cut(words[at].Text, "(")
	plain, known := actions[action]
	lua := strings.HasPrefix(action, "lua.")
	if !known && !lua {
		return 0
	}
	for i := at + 1; i < len(words); i++ {
		last := words[i-1]
		switch {
		case !words[i].Quoted && (words[i].Text == "if" || words[i].Text == "unless"):
			return i
		case lua:
			roles[i] = argumentWord
		case !last.Quoted && slices.Contains([]string{"file", "lf-file", "errorfile"}, last.Text):
			roles[i] = fileWord
		case i-at <= plain:
			roles[i] = textWord
		default:
			roles[i] = formatWord
		}
	}
	return len(words)
}

// patterns sets the roles of what follows an expression in a condition: flags, which may name files, and
// patterns.
func patterns(words []haproxycfg.Word, roles []wordRole) {
	flags := true
	for i := range words {
		roles[i] = textWord
		if flags && i > 0 && words[i-1].Text == "-f" {
			roles[i] = fileWord
			continue
		}
		argument := i > 0 && (words[i-1].Text == "-m" || words[i-1].Text == "-u")
		flags = flags && (argument || strings.HasPrefix(words[i].Text, "-") && words[i].Text != "--")
	}
}

// MaxMapPayload is how many bytes of entries, with a newline each, can be added at once to a map of a worker.
// For more, the Dataplane API makes a new version of the map, without its present entries.
const MaxMapPayload = 8192

// maxMapLine is how many bytes of a line HAProxy reads at once: it takes the rest for another entry.
const maxMapLine = 16384

// isReadable reports whether HAProxy reads the lines of a map as we do.
func isReadable(content []byte) bool {
	if bytes.IndexByte(content, 0) >= 0 {
		return false
	}
	for line := range bytes.Lines(content) {
		if len(line) >= maxMapLine {
			return false
		}
	}
	return true
}

// ParseMap returns the entries of a map file that can be changed at run time, and the other lines, both in
// order. An entry cannot be changed if its key occurs twice, if bytes have a meaning on HAProxy's socket, if
// it is too long for one command, or if no URL of the Dataplane API names its key.
func ParseMap(content []byte) (entries []MapEntry, odd []string) {
	text := string(content)
	count := strings.Count(text, "\n") + 1
	seen := make(map[string]bool, count) // and whether the key is odd
	type parsed struct {
		text  string
		entry MapEntry
		plain bool
	}
	lines := make([]parsed, 0, count)
	for line := range strings.Lines(text) {
		if line == "\n" || line[0] == '#' {
			continue
		}
		entry, plain := plainEntry(line)
		lines = append(lines, parsed{line, entry, plain})
		if plain {
			_, twice := seen[entry.Key]
			seen[entry.Key] = twice
			continue
		}
		for _, key := range keysOf(line) {
			seen[key] = true
		}
	}
	for _, l := range lines {
		if l.plain && !seen[l.entry.Key] {
			entries = append(entries, l.entry)
		} else {
			odd = append(odd, l.text)
		}
	}
	return entries, odd
}

// plainEntry returns the entry of a line, and whether HAProxy's socket and the Dataplane API take it.
func plainEntry(line string) (MapEntry, bool) {
	line, ended := strings.CutSuffix(line, "\n")
	key, value, _ := strings.Cut(line, " ")
	plain := ended && len(line) < MaxMapPayload && isPlainWord(key) && isPlainWord(value) && key != "/" && key != "." && key != ".."
	return MapEntry{key, value}, plain
}

// keysOf returns the key of an odd line as HAProxy reads it, and as the Dataplane API does.
func keysOf(line string) []string {
	var keys []string
	if words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }); len(words) > 0 {
		keys = append(keys, words[0])
	}
	if words := strings.Fields(line); len(words) > 0 {
		keys = append(keys, words[0])
	}
	return slices.Compact(keys)
}

// isPlainWord reports whether a word needs no quoting on HAProxy's socket, and is not a
// reference, a version or the beginning of a payload there.
func isPlainWord(word string) bool {
	return word != "" && word[0] != '#' && word[0] != '@' && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\;<\"'", r)
	})
}

// entriesDigest digests the entries of maps, independently of their order.
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
