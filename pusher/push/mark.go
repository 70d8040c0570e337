package push

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// pusherMark begins the line by which a haproxy.cfg says which pusher wrote it.
const pusherMark = "# hapsnap pusher "

// Pusher tells one pusher from another: by the id of its state, which is random, and by the
// place where it keeps that state. The zero value writes no mark.
type Pusher struct {
	State string `json:"state"`
	Place string `json:"place"`
}

// String names a pusher for people.
func (p Pusher) String() string { return fmt.Sprintf("%s (state %s)", p.Place, p.State) }

// mark is what a haproxy.cfg says of its writer.
type mark struct {
	Pusher
	// follows is the version of the configuration that the text was posted on. The API
	// counts the version up with each change, by whomever, and also when it notices that
	// somebody edited the file. So a text that is still as it was posted has the next one.
	follows int64
}

// line returns the line that says so.
func (m mark) line() string {
	return fmt.Sprintf("%s%s %s follows %d\n", pusherMark, m.State, oneWord(m.Place), m.follows)
}

// markOf returns the mark of a haproxy.cfg. It stands before everything but other comments.
func markOf(config []byte) (mark, bool) {
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if !bytes.HasPrefix(line, []byte("#")) {
			return mark{}, false
		}
		after, ok := bytes.CutPrefix(line, []byte(pusherMark))
		if words := strings.Fields(string(after)); ok && len(words) == 4 && words[2] == "follows" {
			n, err := strconv.ParseInt(words[3], 10, 64)
			return mark{Pusher{words[0], words[1]}, n}, err == nil
		}
	}
	return mark{}, false
}

// oneWord returns a text without what would end a word or a line.
func oneWord(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return '_'
		}
		return r
	}, text)
}

// foreignText says why a haproxy.cfg is not what a pusher wrote, "" if it is, or if nothing
// can be told of it: no pusher marked it, and marked says that none ever did.
func foreignText(raw dataplane.Raw, marked bool) string {
	m, found := markOf(raw.Config)
	version := readVersion(raw.Config)
	switch {
	case !found && marked:
		return "no pusher wrote it"
	case !found:
		return ""
	case raw.Checksum != "" && raw.Checksum != dataplane.Checksum(raw.Config):
		return "it was edited after it was written"
	case version != m.follows+1:
		return fmt.Sprintf("it was changed after it was written: it is version %d, and was version %d", version, m.follows+1)
	case raw.Version > version: // below it while a post is under way: the file is written first
		return fmt.Sprintf("it was changed and put back: it is version %d, and the Dataplane API holds version %d", version, raw.Version)
	}
	return ""
}

// readVersion returns the version that a haproxy.cfg says it has, -1 for none.
func readVersion(config []byte) int64 {
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if after, ok := bytes.CutPrefix(line, []byte(versionMark)); ok {
			if v, err := strconv.ParseInt(string(bytes.TrimSpace(after)), 10, 64); err == nil {
				return v
			}
		}
		if !bytes.HasPrefix(line, []byte("#")) {
			return -1
		}
	}
	return -1
}
