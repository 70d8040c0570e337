package bind

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// textBinder writes the bound haproxy.cfg, and the digest of its shape.
type textBinder struct {
	files      *fileBinder
	secrets    *secretBinder
	directives directives // the ones still to come
	servers    []Server   // the servers of those directives
	slots      Slots
	weighted   map[string]bool
	static     map[string]bool // their static backends, see staticBackends
	allWeights bool
	maps       []Map // see changeableMaps

	config  []byte
	lines   []int
	shape   hash.Hash
	scratch []byte // for the current line
	// global is where the node line goes: the offset in config, and the number of lines before it. It is -1 as
	// long as there is no global section.
	global, globalLines int
}

func newTextBinder(config []byte, files *fileBinder, secrets *secretBinder, found directives, slots Slots, servers []Server) *textBinder {
	t := &textBinder{
		files: files, secrets: secrets, directives: found, servers: servers, slots: slots,
		weighted: weightedBackends(found.servers), shape: sha256.New(), global: -1,
	}
	t.static = staticBackends(config, t.weighted)
	t.config = make([]byte, 0, len(config)+len(config)/8+64*len(servers))
	t.lines = make([]int, 0, bytes.Count(config, []byte{'\n'})+len(servers)+4)
	return t
}

// weightedBackends are the backends whose server lines have weights.
func weightedBackends(directives []Directive) map[string]bool {
	out := map[string]bool{}
	for _, d := range directives {
		if d.Index > 0 || d.Weight != defaultWeight {
			out[d.Backend] = true
		}
	}
	return out
}

// write binds all lines of the snapshot's haproxy.cfg.
func (t *textBinder) write(config []byte) error {
	var in haproxycfg.Section
	for l := range haproxycfg.Lines(config) {
		number, line := l.Number, l.Text
		var err error
		if servers := t.directives.servers; len(servers) > 0 && servers[0].Line == number {
			err = t.writeServers(number, line)
		} else if users := t.directives.users; len(users) > 0 && users[0].Line == number {
			t.writeUsers(number, line)
		} else if opened, ok := haproxycfg.BeginSection(l); ok {
			in = opened
			err = t.writeSection(number, line, in)
		} else {
			err = t.writeLine(number, line, in)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", snapshots.ConfigFile, number, err)
		}
	}
	return nil
}

func (t *textBinder) writeSection(number int, line []byte, opened haproxycfg.Section) error {
	err := t.writeLine(number, line, opened)
	if opened.Keyword == "global" && t.global < 0 {
		t.global, t.globalLines = len(t.config), len(t.lines)
	}
	return err
}

// writeLine writes a line of structure, with its paths made absolute.
func (t *textBinder) writeLine(number int, line []byte, in haproxycfg.Section) error {
	switch l := (haproxycfg.Line{Text: line}); {
	case in.Keyword == "global" && l.Is("node"):
		return errors.New("node is set when a snapshot is bound, and must not be in it")
	case !t.allWeights && l.Is("default-server"):
		t.allWeights = bytes.Contains(line, []byte("weight"))
	}
	start := len(t.config)
	line, err := t.joined(line)
	if err != nil {
		return err
	}
	t.config = append(append(t.config, line...), '\n')
	t.lines = append(t.lines, number)
	if line = t.config[start:]; bytes.Contains(line, []byte(t.files.layout.Maps)) {
		line = withoutEntries(line, t.maps)
	}
	t.shape.Write(line)
	return nil
}

// joined returns a line with absolute paths and with the values of Secrets.
func (t *textBinder) joined(line []byte) ([]byte, error) {
	var err error
	if t.scratch, err = t.files.rewriteConfigLine(t.scratch[:0], line); err != nil {
		return nil, err
	}
	if !t.secrets.words || !bytes.Contains(t.scratch, []byte(SecretMark)) {
		return t.scratch, nil
	}
	var out []byte
	done := 0
	for _, w := range (haproxycfg.Line{Text: t.scratch}).Words() {
		key, ok, err := secretWordIn(t.scratch[w.Start:w.End])
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(append(out, t.scratch[done:w.Start]...), t.secrets.value(key)...)
			done = w.End
		}
	}
	return append(out, t.scratch[done:]...), nil
}

// writeComment writes a directive as a comment that is not a directive any more.
func (t *textBinder) writeComment(number int, line []byte) {
	text, _ := DirectiveText(line)
	t.config = append(append(append(t.config, "    # hapsnap "...), text...), '\n')
	t.lines = append(t.lines, number)
}

// writeServers writes a directive and its servers. The shape has only their names and options, since everything
// else of a server line can be changed at run time. It has the weights too if HAProxy cannot change them.
func (t *textBinder) writeServers(number int, line []byte) error {
	d := t.directives.servers[0]
	servers := t.servers[:len(t.slots[d.Key()])]
	t.directives.servers, t.servers = t.directives.servers[1:], t.servers[len(servers):]
	t.writeComment(number, line)
	options, err := t.joined([]byte(d.Options))
	if err != nil {
		return err
	}
	fmt.Fprintf(t.shape, "\x00servers %d %d %s\n", d.Index, len(servers), options)
	if t.static[d.Backend] && servers[0].Weight != 1 {
		fmt.Fprintf(t.shape, "\x00weight %d\n", servers[0].Weight)
	}
	weigh := t.allWeights || t.weighted[d.Backend]
	for _, server := range servers {
		t.config = appendServer(t.config, server, options, weigh)
		t.lines = append(t.lines, number)
	}
	return nil
}

// writeUsers writes a directive and its users. All of it is in the shape, since HAProxy
// cannot change users at run time.
func (t *textBinder) writeUsers(number int, line []byte) {
	d := t.directives.users[0]
	t.directives.users = t.directives.users[1:]
	start := len(t.config)
	t.writeComment(number, line)
	var users int
	t.config, users = t.secrets.appendUsers(t.config, d.Secret)
	for range users {
		t.lines = append(t.lines, number)
	}
	t.shape.Write(t.config[start:])
}

func appendServer(out []byte, s Server, options []byte, weigh bool) []byte {
	out = append(out, "    server "...)
	out = append(out, s.Name...)
	out = append(out, ' ')
	out = s.appendAddress(out)
	if weigh {
		out = append(out, " weight "...)
		out = strconv.AppendInt(out, int64(s.Weight), 10)
	}
	if len(options) > 0 {
		out = append(append(out, ' '), options...)
	}
	if s.State != SlotReady {
		out = append(out, " disabled"...)
	}
	return append(out, '\n')
}

// finish puts the node into the global section, which it makes if there is none, and ends the text with the end
// marker.
func (t *textBinder) finish(node string) (config []byte, lines []int) {
	line := "    node " + node + "\n"
	at, before, added := t.global, t.globalLines, []int{0}
	if at < 0 {
		line, at, before, added = "global\n"+line, 0, 0, []int{0, 0}
	}
	config = make([]byte, 0, len(t.config)+len(line)+len(endMarker)+len(node)+1)
	config = append(append(append(config, t.config[:at]...), line...), t.config[at:]...)
	config = append(append(append(config, endMarker...), node...), '\n')
	return config, append(slices.Insert(t.lines, before, added...), 0)
}

// secretBinder has the users and values of Secrets that a bound haproxy.cfg contains.
type secretBinder struct {
	live    Live
	words   bool // some line may have words for values
	missing map[Need]bool
	used    map[string]bool // the hashes and values that were written
}

func newSecretBinder(config []byte, live Live) *secretBinder {
	return &secretBinder{live: live, words: bytes.Contains(config, []byte(SecretMark)), missing: map[Need]bool{}, used: map[string]bool{}}
}

// appendUsers appends the user lines of a Secret, and returns their number. If the users are missing, or if one
// of them is not what Parse returns, it appends none, so that no password is accepted.
func (b *secretBinder) appendUsers(out []byte, secret snapshots.SecretName) ([]byte, int) {
	users := b.live.Users[secret]
	usable := len(users) > 0
	for _, u := range users {
		usable = usable && htpasswd.Check(u) == nil
	}
	if !usable {
		b.missing[Need{Use: snapshots.UseUsers, Secret: secret}] = true
		return out, 0
	}
	for _, u := range users {
		out = append(append(out, "    user "...), u.Name...)
		out = append(append(out, " password "...), u.Hash...)
		out = append(out, '\n')
		b.used[u.Hash] = true
	}
	return out, len(users)
}

func (b *secretBinder) value(key SecretKey) string {
	value, err := SecretValue([]byte(b.live.Values[key]))
	if err != nil {
		b.missing[Need{Use: snapshots.UseValue, Secret: key.Secret, Key: key.Key}] = true
		return standInValue(key, b.live.Fallback)
	}
	b.used[value], b.used[quoteWord(value)] = true, true
	return quoteWord(value)
}

// written returns the hashes and values that were written, the longest first, since one may
// be part of another.
func (b *secretBinder) written() []string {
	return slices.SortedFunc(maps.Keys(b.used), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x, y))
	})
}

// standInValue is written instead of a missing value. It is the same at all instances, and
// nobody without the pusher's key can guess it: what the value protects stays closed.
func standInValue(key SecretKey, fallback []byte) string {
	h := hmac.New(sha256.New, fallback)
	h.Write([]byte(key.String()))
	return "missing-" + hex.EncodeToString(h.Sum(nil)[:16])
}
