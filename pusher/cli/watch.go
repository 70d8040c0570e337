package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// watchEvery returns how often a state is looked at.
func watchEvery(state string) time.Duration {
	if inSecret(state) {
		return time.Second
	}
	return 250 * time.Millisecond
}

// watcher shows a status again and again: as a page that is drawn anew at a terminal,
// and as a line for each change elsewhere.
type watcher struct {
	out  io.Writer
	page bool
	json bool
	last string // what was shown
	seen pusher.Status
}

// watchStatus shows the status in a state until ctx is done.
func watchStatus(ctx context.Context, every time.Duration, read func(context.Context) (pusher.Status, error), w *watcher) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for first := true; ; first = false {
		s, err := read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && (first || !errors.Is(err, pusher.ErrNoState) && !errors.Is(err, statestore.ErrNone)) {
			return err
		}
		if err == nil {
			if err := w.show(s, time.Now()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *watcher) show(s pusher.Status, now time.Time) error {
	switch {
	case w.json:
		return w.showJSON(s)
	case w.page:
		return w.draw(s, now)
	}
	defer func() { w.seen = s }()
	for _, line := range changesOf(w.seen, s) {
		if _, err := fmt.Fprintf(w.out, "%s %s\n", s.Updated.UTC().Format(time.RFC3339), line); err != nil {
			return err
		}
	}
	return nil
}

// showJSON prints a status on one line, if it is another one.
func (w *watcher) showJSON(s pusher.Status) error {
	bare := s
	bare.Updated = time.Time{}
	key, err := json.Marshal(bare)
	if err != nil || string(key) == w.last {
		return err
	}
	w.last = string(key)
	return json.NewEncoder(w.out).Encode(s)
}

// draw draws the page where it was drawn before. Each line is erased to its end, and
// what was below as well, so that nothing flickers.
func (w *watcher) draw(s pusher.Status, now time.Time) error {
	const home, endOfLine, below, all = "\x1b[H", "\x1b[K\n", "\x1b[J", "\x1b[2J"
	var page bytes.Buffer
	if err := printStatus(&page, s, now); err != nil {
		return err
	}
	if s.Rollout != nil {
		fmt.Fprintf(&page, "\n%s\n", progress(s))
	}
	text := home + strings.ReplaceAll(page.String(), "\n", endOfLine) + below
	if w.last == "" {
		text = all + text
	}
	if text == w.last {
		return nil
	}
	w.last = text
	_, err := io.WriteString(w.out, text)
	return err
}

// progress shows how many instances run what is being rolled out.
func progress(s pusher.Status) string {
	const width = 30
	done := 0
	for _, i := range s.Instances {
		if i.Reachable && i.Running == s.Rollout.Target {
			done++
		}
	}
	filled := width * done / max(len(s.Instances), 1)
	return fmt.Sprintf("[%s%s] %d of %d run %s", strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, len(s.Instances), s.Rollout.Target)
}

// changesOf returns a line for each thing that is otherwise than it was.
func changesOf(old, s pusher.Status) []string {
	var lines []string
	tell := func(was, is string) {
		if was != is {
			lines = append(lines, is)
		}
	}
	tell("wanted: "+old.Channel.Message, "wanted: "+s.Channel.Message)
	tell(rolloutLine(old), rolloutLine(s))
	if takes := takesLine(s); takes != "" {
		tell(takesLine(old), takes)
	}
	lines = append(lines, listChanges("trouble: ", "no more trouble: ", troubleLines(old), troubleLines(s))...)
	before := map[string]pusher.InstanceStatus{}
	for _, i := range old.Instances {
		before[i.Name] = i
	}
	for _, i := range s.Instances {
		was, known := before[i.Name]
		if line := instanceLine(i); !known || line != instanceLine(was) {
			lines = append(lines, line)
		}
		delete(before, i.Name)
	}
	for _, i := range old.Instances {
		if _, gone := before[i.Name]; gone {
			lines = append(lines, i.Name+": left the fleet")
		}
	}
	return lines
}

func rolloutLine(s pusher.Status) string {
	switch {
	case s.Rollout != nil:
		return "rollout: " + describeRollout(*s.Rollout)
	case s.Good.IsZero():
		return "rollout: none yet"
	}
	return "rollout: none, the fleet runs " + s.Good.String()
}

func takesLine(s pusher.Status) string {
	if s.Rollout == nil || s.Rollout.Change == nil {
		return ""
	}
	return "takes: " + s.Rollout.Change.String()
}

func instanceLine(i pusher.InstanceStatus) string {
	line := fmt.Sprintf("%s: runs %s, in sync: %s", i.Name, orDash(running(i)), inSync(i))
	if i.Error != "" {
		line += ", " + firstLine(i.Error)
	}
	for _, h := range i.ByHand {
		line += fmt.Sprintf(", by hand %s", h)
	}
	return line
}

func troubleLines(s pusher.Status) []string {
	var lines []string
	for _, t := range s.Troubles {
		lines = append(lines, t.About+": "+firstLine(t.Error))
	}
	return lines
}

// listChanges returns what came and what went.
func listChanges(came, went string, old, now []string) []string {
	var lines []string
	known := map[string]bool{}
	for _, line := range old {
		known[line] = true
	}
	for _, line := range now {
		if !known[line] {
			lines = append(lines, came+line)
		}
		delete(known, line)
	}
	for _, line := range old {
		if known[line] {
			lines = append(lines, went+line)
		}
	}
	return lines
}

// newWatcher shows pages at a terminal that is not too simple for them.
func newWatcher(out io.Writer, output process.OutputFlag) *watcher {
	return &watcher{out: out, json: output.String() == "json", page: process.Terminal(out)}
}
