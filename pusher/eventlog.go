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
)

// The event log has what a pusher heard and what it decided, a line of JSON each, so that
// the run can be replayed: the same events at the same times lead to the same effects. See
// docs/how-to/incidents.md. Of secrets it has digests, which tell them apart in one log.
//
// The first line has the state and the settings that the pusher began with. Then there is a
// line for each event, and one for the turn after them with the effects that it began. What
// decisions take from nodes that were bound stands in the line of the turn.
//
// Nothing waits for the log. A line that cannot be written is dropped, and said once.

// eventLogVersion changes when a log of before cannot be replayed.
const eventLogVersion = 2

// logLine is a line of an event log.
type logLine struct {
	At    time.Time `json:"at"`
	Begin *logBegin `json:"begin,omitempty"`
	// Event is what was heard.
	Event *loggedEvent `json:"event,omitempty"`
	// Turn is set for a turn, and Effects are what it began.
	Turn    bool     `json:"turn,omitempty"`
	Effects []string `json:"effects,omitempty"`
	// Nodes are those that were bound for it.
	Nodes []binding.RecordedNode `json:"nodes,omitempty"`
	// Lost is how many lines before this one could not be written: from here on the log is
	// to be read, not replayed.
	Lost int `json:"lost,omitempty"`
	// Continued is set in the first line of a file that goes on after another.
	Continued bool `json:"continued,omitempty"`
}

// logBegin is what a pusher began with.
type logBegin struct {
	Version int             `json:"version"`
	State   json.RawMessage `json:"state"`
	// Term is that in which it leads, none where nothing says who leads.
	Term     *int64        `json:"term,omitempty"`
	Settings core.Settings `json:"settings"`
}

// eventLog records a run. A nil one records nothing. Only the loop's goroutine uses it.
type eventLog struct {
	write     func(line []byte) // it waits for nothing
	first     logBegin
	began     bool      // first is written
	at        time.Time // of that
	key       [32]byte  // of digests
	nodes     []binding.RecordedNode
	servers   map[string]serverLists
	passwords []string // of the fleet, which no text may have
	log       *slog.Logger
	failed    bool
}

// newEventLog returns a log of a run that begins with a state.
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

// digest returns what a secret is known by in this log.
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

// step has a machine take a step, and records it. The times of its events are that of the step.
func (l *eventLog) step(m *core.Machine, now time.Time, taken []core.Event) []core.Effect {
	if l == nil {
		return m.Step(now, taken...)
	}
	if !l.began {
		l.began = true
		m.RecordNodes(func(n binding.RecordedNode) { l.nodes = append(l.nodes, n) })
		l.add(logLine{At: l.at, Begin: &l.first})
		l.first = logBegin{}
	}
	for _, ev := range taken {
		logged, err := l.encode(ev) // before it is taken: what is in it may be used up then
		if err != nil {
			l.fail(err)
		}
		l.add(logLine{At: now, Event: &logged})
	}
	effects := m.Step(now, taken...)
	line := logLine{At: now, Turn: true}
	for _, x := range effects {
		line.Effects = append(line.Effects, x.String())
	}
	l.add(line)
	return effects
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

// The size of a file of an event log, of which there are two at most, and how many lines may
// wait to be written.
const (
	eventLogSize    = 64 << 20
	eventLogWaiting = 4096
)

// eventFile writes an event log into a file, in a goroutine of its own. The log of the run
// before, and what does not fit into one file, is in another with ".1" appended.
type eventFile struct {
	path  string
	size  int
	lines chan []byte
	lost  int // by who sends
	log   *slog.Logger
}

func newEventFile(path string, log *slog.Logger) *eventFile {
	return &eventFile{path: path, size: eventLogSize, lines: make(chan []byte, eventLogWaiting), log: log}
}

// write hands a line on. It waits for nothing: where the disk does not keep up, lines are
// lost, which the next one says.
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

// run writes until the lines are closed. A file that cannot be written is left alone for
// good: a log with a hole cannot be replayed.
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
			continue // there is nowhere to write
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

// open begins a file, and keeps the one before; nil where that cannot be.
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
