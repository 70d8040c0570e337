package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

const (
	checkTimeout = 30 * time.Second // of a check, which is logged or not
	// collectTimeout is that of one try to remove files, in which the instance gets no push.
	collectTimeout = 10 * time.Second
)

// Job carries out an effect. It may take long, and sends events. Its context ends with the pusher, and
// has the span of a push or an update.
type Job func(ctx context.Context, send func(Event))

// Job returns the job of an effect. The caller calls it in the order in which effects were decided. It
// waits for nothing. Without a connection to the instance the job does nothing: [JoinFailed] has said
// why.
func (s *Connections) Job(x Effect) Job {
	if j, is := x.(Join); is {
		c, err := s.join(j)
		if err != nil {
			return one(func(context.Context) Event { return JoinFailed{About{Ref: j.Ref}, err} })
		}
		return c.probe(s.options)
	}
	c := s.byName[x.On().Name]
	if c == nil {
		return func(context.Context, func(Event)) {}
	}
	switch x := x.(type) {
	case Renew:
		err := s.renew(x)
		return one(func(context.Context) Event { return Renewed{c.about(), x.Spec, err} })
	case Leave:
		s.leave(x.Name)
		return func(context.Context, func(Event)) {}
	}
	return one(func(ctx context.Context) Event { return c.job(ctx, x) })
}

// one makes a job that sends one event.
func one(run func(context.Context) Event) Job {
	return func(ctx context.Context, send func(Event)) { send(run(ctx)) }
}

// job carries out an effect that ends with one event.
func (c *connection) job(ctx context.Context, x Effect) Event {
	switch x := x.(type) {
	case Check:
		return c.check(ctx)
	case Claim:
		return c.claim(ctx, x)
	case Push:
		return c.push(ctx, x)
	case Update:
		return c.update(ctx, x)
	case Persist:
		return c.persist(ctx, x)
	case Tidy:
		return c.tidy(ctx, x)
	case Collect:
		return c.collect(ctx, x)
	case Inspect:
		return c.inspect(ctx, x)
	case Mend:
		return c.mend(ctx, x)
	case Sample:
		found, err := sample(ctx, c.client, x.Ignore, x.At)
		return Sampled{c.about(), found, err}
	}
	panic(fmt.Sprintf("an effect of a kind that is not known: %T", x))
}

func (c *connection) check(ctx context.Context) Event {
	ctx, cancel := c.within(ctx, checkTimeout)
	defer cancel()
	facts := preflight.Gather(ctx, c.client, c.spec, false)
	if err := errors.Join(ctx.Err(), facts.Reached); err != nil {
		return Checked{About: c.about(), Err: err} // probes report an instance that is out of reach
	}
	return Checked{About: c.about(), Found: preflight.Judge(facts)}
}

func (c *connection) claim(ctx context.Context, x Claim) Event {
	ctx, cancel := c.within(ctx, c.target.ReloadTimeout)
	defer cancel()
	err := c.target.Judge(ctx)
	if err == nil {
		err = c.fence.Claim(ctx, c.client, c.target.Record)
	}
	return ClaimEnded{c.about(), x.Term, err}
}

func (c *connection) push(ctx context.Context, x Push) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	began := time.Now()
	end := PushEnded{Push: x.Push}
	bound := x.Want.Bind
	if x.Whole {
		bound = x.Want.BindWhole
	}
	if end.Want, end.Err = bound(); end.Err == nil {
		var good *bind.Bound
		running, goodErr := x.Running.Bind()
		if goodErr == nil {
			good = &running
		}
		switch {
		case !x.Push.AtRuntime:
			end.Done, end.Err = c.target.Push(ctx, end.Want, good, c.onDisk)
		case goodErr != nil:
			end.Err = fmt.Errorf("%w: %w", push.ErrNeedsReload, goodErr) // the rollout has a budget for reloads
		default:
			end.Done, end.Err = c.target.ApplyAtRuntime(ctx, end.Want, running, x.Have, c.onDisk)
		}
		end.Err = withoutSecrets(end.Err, end.Want, running)
		end.Change = changeOf(good, end.Want, end.Done.Reloaded)
		end.Certificates = push.Hashes(end.Want)
		// Of those that the push did not write, the next update asks the worker.
		maps.DeleteFunc(end.Certificates, func(path string, hash [32]byte) bool { return c.onDisk[path] != hash })
	}
	observe.EndJob(ctx, end.Done.Reloaded, outcome(end.Err), end.Err)
	for _, f := range end.Want.Files {
		if _, wrote := c.onDisk[f.Path]; wrote && f.Kind == bind.CertificateFile {
			end.Written = append(end.Written, push.Stored{Kind: f.Kind, Name: f.Name})
		}
	}
	end.Took, end.About = time.Since(began), c.about()
	return end
}

func (c *connection) update(ctx context.Context, x Update) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	began := time.Now()
	var bound bind.Bound // if Update called Bind
	x.Want.Bind = func() (_ bind.Bound, err error) {
		bound, err = x.Unbound.Bind()
		return bound, err
	}
	have, err := c.target.Update(ctx, x.Want, x.Have)
	for path, hash := range x.Want.Certificates {
		switch hash {
		case x.Have.Certificates[path]:
		case have.Certificates[path]: // it was written to both, or the worker says that it has it
			c.onDisk[path] = hash
		default:
			delete(c.onDisk, path) // the update may have written it
		}
	}
	err = withoutSecrets(err, bound)
	observe.EndJob(ctx, have.Reloaded, outcome(err), err)
	return UpdateEnded{c.about(), x.Want.Node, began, x.Have, have, err}
}

func (c *connection) persist(ctx context.Context, x Persist) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	began, have := time.Now(), x.Have
	write := c.target.WriteServers
	if x.Alone {
		write = c.target.WriteFile
	}
	want, err := x.Want.Bind()
	if err == nil {
		have, err = write(ctx, want, have)
		if errors.Is(err, dataplane.ErrValidation) { // a file that the text names may be gone
			if _, mendErr := c.target.Mend(ctx, want, c.onDisk); mendErr == nil {
				have, err = write(ctx, want, have)
			}
		}
		err = withoutSecrets(err, want)
	}
	return PersistEnded{c.about(), have, time.Since(began), err, x.Alone}
}

func (c *connection) tidy(ctx context.Context, x Tidy) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	have, err := c.target.DropDynamicServers(ctx, x.Have)
	return TidyEnded{c.about(), have, err}
}

func (c *connection) collect(ctx context.Context, x Collect) Event {
	ctx, cancel := c.within(ctx, collectTimeout)
	defer cancel()
	removed, err := c.target.Remove(ctx, x.Garbage)
	for _, f := range removed {
		if f.Kind == bind.CertificateFile {
			delete(c.onDisk, path.Join(c.spec.Layout.Certificates, f.Name))
		}
	}
	return CollectEnded{c.about(), x.Garbage, removed, err}
}

func (c *connection) inspect(ctx context.Context, x Inspect) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	found := push.Inspection{Running: x.Have}
	want, err := x.Want.Bind()
	if err == nil {
		found, err = c.target.Inspect(ctx, want, x.Have, x.Round)
		err = withoutSecrets(err, want)
	}
	if errors.Is(err, push.ErrElsewhere) {
		err = nil // it was reloaded meanwhile, and is inspected again later
		found = push.Inspection{}
	}
	return InspectEnded{c.about(), x, found, err}
}

func (c *connection) mend(ctx context.Context, x Mend) Event {
	ctx, cancel := c.within(ctx, c.limit)
	defer cancel()
	want, err := x.Want.Bind()
	var disk push.Digest
	if err == nil {
		disk, err = c.target.Mend(ctx, want, c.onDisk)
		err = withoutSecrets(err, want)
	}
	return MendEnded{c.about(), disk, want.Servers, err}
}

// redacted is an error with another text.
type redacted struct {
	error
	text string
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.error }

// withoutSecrets removes secrets from an error in which HAProxy quotes its configuration, so that they
// get neither into logs nor into the status.
func withoutSecrets(err error, bound ...bind.Bound) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, b := range bound {
		text = b.Redact(text)
	}
	return redacted{err, text}
}

// longestChange is how much of a changed line is reported, in bytes.
const longestChange = 160

// changeOf returns the change from what runs, nil if that is not known, to what was bound. If the push
// reloaded, the class is a reload, even if the difference needed none.
func changeOf(running *bind.Bound, want bind.Bound, reloaded bool) report.Change {
	if running == nil {
		return report.Change{Snapshot: want.ID, Class: bind.Reload}
	}
	c := bind.Classify(*running, want)
	if reloaded {
		c.Verdict = bind.Reload
	}
	side := want
	if c.Old {
		side = *running
	}
	if c.File == snapshots.ConfigFile {
		c.Line, c.Text = shownLine(side, c.Line, c.Text)
	}
	return report.Change{
		Snapshot: want.ID, From: running.ID, Class: c.Verdict, Old: c.Old, File: c.File, Line: c.Line,
		Text: report.FirstLine(c.Text, longestChange),
	}
}

// shownLine returns a line of a bound configuration for people, with its number in the snapshot. For
// an empty line, such as before a new section, it returns the next line that is not empty.
func shownLine(b bind.Bound, line int, text string) (int, string) {
	if line < 1 || line > len(b.Lines) {
		return line, text
	}
	if strings.TrimSpace(text) == "" {
		for i, next := range strings.Split(string(b.Config), "\n")[line:] {
			if next = strings.TrimSpace(next); next != "" && line+i < len(b.Lines) && b.Lines[line+i] > 0 {
				return b.Lines[line+i], b.Redact(next)
			}
		}
	}
	return b.Lines[line-1], text
}
