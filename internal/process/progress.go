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

// Progress shows what a verb does, on the last line of a terminal. It appears after a second in which the verb
// printed nothing, and disappears when the verb prints something or ends.
type Progress struct {
	to    io.Writer
	began time.Time

	lock  sync.Mutex
	doing string
	shown string // the line that is on the terminal now
	timer *time.Timer
	ended bool
}

type progressKey struct{}

// AddProgress makes verbs of a program show what they do, by verb, without the name of the program. The text is
// what they do at first; with "" they show nothing before a call of [Doing]. The line is shown on stderr, and
// only if that is a terminal that can rewrite a line, so that scripts and logs do not get it.
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
				if !Terminal(errs) {
					return run(cmd, args)
				}
				p := newProgress(errs, doing)
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
	return true
}

func newProgress(to io.Writer, doing string) *Progress {
	p := &Progress{to: to, began: time.Now(), doing: doing}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.timer = time.AfterFunc(silence, p.tick)
	return p
}

// tick shows the line, and for how long the verb has been running.
func (p *Progress) tick() {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.ended {
		return
	}
	p.draw()
	p.timer.Reset(silence)
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
		a.progress.timer.Reset(silence)
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
