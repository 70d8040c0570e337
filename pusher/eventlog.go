package pusher

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// The event log has the events and effects of a pusher, as lines of JSON, so that the run can be
// replayed: the same events at the same times lead to the same effects. See
// docs/how-to/incidents.md. In place of secrets it has digests, which differ if the secrets differ,
// within one log.
//
// The first line has the state and the settings with which the pusher began. Then there is a line for
// each event, and one for the turn after them with its effects. The line of a turn also has the nodes
// that were bound for it, on which decisions depend.
//
// Nothing waits for the log. A line that cannot be written is dropped, which is logged once.

// eventLogVersion changes when older logs can no longer be replayed.
const eventLogVersion = 2

// logLine is a line of an event log.
type logLine struct {
	At    time.Time    `json:"at"`
	Begin *logBegin    `json:"begin,omitempty"`
	Event *loggedEvent `json:"event,omitempty"`
	// Turn is set for a turn. Effects are those that it returned.
	Turn    bool     `json:"turn,omitempty"`
	Effects []string `json:"effects,omitempty"`
	// Nodes are those that were bound for the turn.
	Nodes []binding.RecordedNode `json:"nodes,omitempty"`
	// Lost is how many lines before this one could not be written. From here on the log can be read,
	// but not replayed.
	Lost int `json:"lost,omitempty"`
	// Continued is set in the first line of a file that continues another.
	Continued bool `json:"continued,omitempty"`
}

// logBegin is the state and the settings with which a pusher began.
type logBegin struct {
	Version int             `json:"version"`
	State   json.RawMessage `json:"state"`
	// Term is the term in which it leads.
	Term     *int64        `json:"term,omitempty"`
	Settings core.Settings `json:"settings"`
}

// eventLog records a run. A nil one records nothing. Only the loop's goroutine uses it.
type eventLog struct {
	write     func(line []byte) // waits for nothing
	first     logBegin
	began     bool      // first was written
	at        time.Time // of first
	key       [32]byte  // of digests
	nodes     []binding.RecordedNode
	servers   map[string]serverLists // by the name of the instance
	passwords []string               // of the fleet; no text may contain them
	log       *slog.Logger
	failed    bool
}

// newEventLog returns the log of a run that begins with a state.
func newEventLog(write func([]byte), settings core.Settings, s core.State, log *slog.Logger, now time.Time) *eventLog {
	l := &eventLog{write: write, at: now, servers: map[string]serverLists{}, log: log}
	_, _ = rand.Read(l.key[:]) // never fails
	data, err := s.Encoded()
	if err != nil {
		l.fail(err)
	}
	l.first = logBegin{Version: eventLogVersion, State: data, Settings: settings}
	return l
}

// digest returns the digest that stands for a secret in this log.
func (l *eventLog) digest(secret []byte) string {
	h := hmac.New(sha256.New, l.key[:])
	h.Write(secret)
	return "hidden-" + hex.EncodeToString(h.Sum(nil)[:12])
}

func (l *eventLog) fail(err error) {
	if !l.failed {
		l.failed = true
		l.log.Warn("cannot write the event log, the pusher goes on without it", "err", err)
	}
}

// node notes a node that the machine has bound. The next line has it.
func (l *eventLog) node(n binding.RecordedNode) { l.nodes = append(l.nodes, n) }

// taken records the events of a step, with the time of the step. The machine has not taken them yet: it may change what is
// in them.
func (l *eventLog) taken(now time.Time, events []core.Event) {
	if l == nil {
		return
	}
	if !l.began {
		l.began = true
		l.add(logLine{At: l.at, Begin: &l.first})
		l.first = logBegin{}
	}
	for _, ev := range events {
		logged, err := l.encode(ev)
		if err != nil {
			l.fail(err)
		}
		l.add(logLine{At: now, Event: &logged})
	}
}

// returned records the effects that the machine returned for the events, and forgets what instances had that the view
// after the step does not show any more.
func (l *eventLog) returned(now time.Time, effects []core.Effect, after observe.View) {
	if l == nil {
		return
	}
	line := logLine{At: now, Turn: true}
	for _, x := range effects {
		line.Effects = append(line.Effects, x.String())
	}
	l.add(line)
	// Pods come and go under ever new names. Without its last lists, the next line of an instance has whole ones.
	if len(l.servers) > 2*(1+len(after.Instances)+len(after.Draining)) {
		clear(l.servers)
	}
}

// add writes a line.
func (l *eventLog) add(line logLine) {
	line.Nodes, l.nodes = l.nodes, nil
	data, err := json.Marshal(line)
	if err != nil {
		l.fail(fmt.Errorf("encode: %w", err))
		return
	}
	l.write(append(data, '\n'))
}

// The size of each of the two files of an event log, and how many lines may wait to be written.
const (
	eventLogSize    = 64 << 20
	eventLogWaiting = 4096
)

// eventFile writes an event log into a file, in a goroutine of its own. When a run begins or the file
// is full, it renames the file, with ".1" appended.
type eventFile struct {
	path  string
	size  int
	lines chan []byte
	lost  int // lines that write dropped
	log   *slog.Logger
}

func newEventFile(path string, log *slog.Logger) *eventFile {
	return &eventFile{path: path, size: eventLogSize, lines: make(chan []byte, eventLogWaiting), log: log}
}

// write hands over a line. It waits for nothing: if the disk is too slow, lines are lost, and the next
// line says how many.
func (f *eventFile) write(line []byte) {
	if f.lost > 0 {
		said, err := json.Marshal(logLine{At: time.Now(), Lost: f.lost})
		if err != nil || len(f.lines) > cap(f.lines)-2 {
			f.lost++
			return
		}
		f.lines <- append(said, '\n')
		f.lost = 0
	}
	select {
	case f.lines <- line:
	default:
		f.lost++
	}
}

// run writes until lines is closed. After an error it writes nothing more: a log with a hole cannot be
// replayed.
func (f *eventFile) run() {
	file, written, err := f.open(nil), 0, error(nil)
	for line := range f.lines {
		if file != nil && written > 0 && written+len(line) > f.size {
			file, written = f.open(file), 0
			if file != nil {
				_, err = file.WriteString(`{"at":` + quotedNow() + `,"continued":true}` + "\n")
			}
		}
		if file == nil {
			continue // the file could not be opened or written
		}
		if err == nil {
			_, err = file.Write(line)
			written += len(line)
		}
		if err != nil {
			f.log.Warn("cannot write the event log, the pusher goes on without it", "file", f.path, "err", err)
			_ = file.Close()
			file = nil
		}
	}
	if file != nil {
		_ = file.Close()
	}
}

func quotedNow() string {
	data, _ := json.Marshal(time.Now()) // never fails
	return string(data)
}

// open begins a new file and renames the previous one. It returns nil after an error.
func (f *eventFile) open(before *os.File) *os.File {
	if before != nil {
		_ = before.Close()
	}
	file, err := f.replace()
	if err != nil {
		f.log.Warn("cannot write the event log, the pusher goes on without it", "file", f.path, "err", err)
		return nil
	}
	return file
}

func (f *eventFile) replace() (*os.File, error) {
	switch info, err := os.Lstat(f.path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is there, and is no file")
	default:
		if err := os.Rename(f.path, f.path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
}
