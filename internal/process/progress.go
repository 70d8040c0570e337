package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// silence is how long a verb prints nothing before people see what it does. It is also the time between updates
// of how long it has done so.
const silence = time.Second

// longSilence is how long a verb prints nothing before a log or a script gets a line about what it does. There is only
// one such line.
var longSilence = 15 * time.Second

// Progress shows what a verb does, on the last line of a terminal. It appears after a second in which the verb
// printed nothing, and disappears when the verb prints something or ends.
type Progress struct {
	to    io.Writer
	began time.Time
	plain bool // it is no terminal

	lock  sync.Mutex
	doing string
	shown string // the line that is on the terminal now
	timer *time.Timer
	ended bool
}

type progressKey struct{}

// AddProgress makes verbs of a program show what they do, by verb, without the name of the program. The text is
// what they do at first; with "" they show nothing before a call of [Doing]. The line is shown on stderr. If that is no
// terminal that can rewrite a line, such as for scripts, it gets one line, and only of a verb that prints nothing for long.
func AddProgress(root *cobra.Command, first map[string]string) {
	for _, verb := range root.Commands() {
		for _, cmd := range append([]*cobra.Command{verb}, verb.Commands()...) {
			doing, ok := first[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]
			if !ok {
				continue
			}
			run := cmd.RunE
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
				p := newProgress(errs, doing, !Terminal(errs))
				defer p.end()
				cmd.SetOut(&aside{out, p})
				cmd.SetErr(&aside{errs, p})
				defer cmd.SetOut(out)
				defer cmd.SetErr(errs)
				cmd.SetContext(context.WithValue(cmd.Context(), progressKey{}, p))
				return run(cmd, args)
			}
		}
	}
}

// Doing says what the verb that runs under ctx does from now on, or nothing with "". It reports whether people
// see that.
func Doing(ctx context.Context, format string, args ...any) bool {
	p, ok := ctx.Value(progressKey{}).(*Progress)
	if !ok {
		return false
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	p.doing = printable.Text(line)
	if p.shown != "" && !p.ended {
		p.draw()
	}
	return !p.plain
}

// Pause lets a while pass, such as one that a server asks for, and has people see what the verb that runs under ctx waits
// for. It returns false at once if ctx ends before the while is over, or is not that of a verb: a program that keeps
// running decides itself when to try again.
func Pause(ctx context.Context, d time.Duration, format string, args ...any) bool {
	p, ok := ctx.Value(progressKey{}).(*Progress)
	if end, bounded := ctx.Deadline(); !ok || bounded && time.Until(end) <= d {
		return false
	}
	p.lock.Lock()
	before := p.doing
	p.lock.Unlock()
	Doing(ctx, format, args...)
	defer Doing(ctx, "%s", before)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func newProgress(to io.Writer, doing string, plain bool) *Progress {
	p := &Progress{to: to, began: time.Now(), doing: doing, plain: plain}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.timer = time.AfterFunc(p.silence(), p.tick)
	return p
}

func (p *Progress) silence() time.Duration {
	if p.plain {
		return longSilence
	}
	return silence
}

// tick shows the line, and for how long the verb has been running.
func (p *Progress) tick() {
	p.lock.Lock()
	defer p.lock.Unlock()
	switch {
	case p.ended:
		return
	case p.plain && p.doing != "":
		_, _ = fmt.Fprintf(p.to, "still %s, after %s\n", p.doing, time.Since(p.began).Truncate(time.Second)) // as in draw
		p.ended = true
	case !p.plain:
		p.draw()
	}
	p.timer.Reset(p.silence())
}

// draw replaces the line on the terminal. The new line is shorter than the terminal is wide, since a line that
// continues below could not be erased.
func (p *Progress) draw() {
	if p.doing == "" {
		p.erase()
		return
	}
	columns := width(p.to)
	if columns == 0 {
		columns = helpWidth
	}
	took := fmt.Sprintf(" (%s)", time.Since(p.began).Truncate(time.Second))
	line := p.doing + took
	if room := columns - 1 - len(took); room > 0 {
		line = Shorten(p.doing, room) + took
	}
	if line == p.shown {
		return
	}
	p.shown = line
	_, _ = io.WriteString(p.to, eraseLine+line) // a verb does not fail because nobody sees its progress
}

const eraseLine = "\r\x1b[K"

func (p *Progress) erase() {
	if p.shown != "" {
		p.shown = ""
		_, _ = io.WriteString(p.to, eraseLine) // likewise
	}
}

func (p *Progress) end() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.ended = true
	p.timer.Stop()
	p.erase()
}

// aside is a stream of a verb that shows its progress: printed text replaces the line.
type aside struct {
	to       io.Writer
	progress *Progress
}

func (a *aside) Write(text []byte) (int, error) {
	a.progress.lock.Lock()
	defer a.progress.lock.Unlock()
	a.progress.erase()
	if !a.progress.ended {
		a.progress.timer.Reset(a.progress.silence())
	}
	return a.to.Write(text)
}

// fileOf returns the file behind a writer, or nil if it is something else.
func fileOf(w io.Writer) *os.File {
	if a, ok := w.(*aside); ok {
		w = a.to
	}
	if o, ok := w.(*output); ok {
		w = o.to
	}
	f, _ := w.(*os.File)
	return f
}
