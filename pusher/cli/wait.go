package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// failureOf returns why a snapshot failed, unless it had failed so before.
func failureOf(s report.Status, id snapshots.ID, before []rollout.Failure) (rollout.Failure, bool) {
	i := slices.IndexFunc(s.Rejected, func(f rollout.Failure) bool {
		return f.Snapshot == id && !slices.ContainsFunc(before, func(old rollout.Failure) bool { return old.Snapshot == id && old.At.Equal(f.At) })
	})
	if i < 0 {
		return rollout.Failure{}, false
	}
	return s.Rejected[i], true
}

// goal is what somebody waits for.
type goal struct {
	snapshot  snapshots.ID      // the whole fleet is to run it; zero: any
	undone    snapshots.ID      // the rollout that is to be undone
	idle      bool              // no rollout is to be under way
	seen      snapshots.ID      // of the rollout that was under way at first
	condition string            // that is to hold
	before    []rollout.Failure // that were known before
}

// conditions are those of a status that can be waited for.
var conditions = []string{"Ready", "Progressing", "Degraded"}

// reached decides whether a fleet is where somebody waits for it to be: done says how it is, or
// failed why it will not be there. Both are "" while that is open.
func (g goal) reached(s report.Status) (done, failed string) {
	c := s.Condition()
	runs := fmt.Sprintf("%d of %d instances run %s", c.Running, c.Instances, c.Wanted)
	undoing := s.Phase() == rollout.Undoing
	switch {
	case s.Stale: // it says how the fleet was
	case g.condition != "":
		if i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == g.condition }); i >= 0 && s.Conditions[i].Status == metav1.ConditionTrue {
			return fmt.Sprintf("%s: %s", g.condition, s.Conditions[i].Message), ""
		}
	case !g.undone.IsZero():
		if f, ok := failureOf(s, g.undone, g.before); ok && !undoing && (s.Rollout == nil || s.Rollout.Target != g.undone) {
			return fmt.Sprintf("%s is undone: %s", g.undone, f.Reason), ""
		}
	case !g.snapshot.IsZero():
		f, ok := failureOf(s, g.snapshot, g.before)
		switch {
		case ok && undoing:
			return "", fmt.Sprintf("%s failed, and is being undone: %s", g.snapshot, f.Reason)
		case ok:
			return "", fmt.Sprintf("%s failed: %s", g.snapshot, f.Reason)
		case c.Wanted == g.snapshot && s.Rollout == nil && c.Instances > 0 && c.Running == c.Instances:
			return runs, ""
		}
	case g.idle:
		switch {
		case undoing:
			return "", fmt.Sprintf("the rollout of %s failed, and is being undone: %s", s.Rollout.Target, s.Rollout.Reason)
		case !g.seen.IsZero():
			if f, ok := failureOf(s, g.seen, g.before); ok {
				return "", fmt.Sprintf("%s failed: %s", f.Snapshot, f.Reason)
			}
		}
		if s.Rollout == nil && s.Channel.Message != report.NotRead && (s.Channel.Hold || c.Instances > 0 && c.Running == c.Instances) {
			return "no rollout is under way: " + runs, ""
		}
	}
	return "", ""
}

// unseen says what of the store a pusher has not seen yet, "" if it has seen everything. A pusher that requires
// signatures may decide otherwise than this process, which may not have its keys.
func unseen(view channel.View, s report.Status, now time.Time) string {
	view.Fleet = s.Fleet
	want := channel.Want(view, now)
	if want.ID == s.Channel.Wanted && want.Hold == s.Channel.Hold || slices.ContainsFunc(s.Troubles, func(t report.Trouble) bool { return t.About == report.AboutSigned }) {
		return ""
	}
	return fmt.Sprintf("by the store, %s; the pusher has not seen that yet", want.Message)
}

// open says how a fleet is that is not where somebody waits for it to be.
func (g goal) open(s report.Status) string {
	c := s.Condition()
	text := fmt.Sprintf("%s: %s", strings.ToLower(string(c.Phase)), c.Message)
	if !g.snapshot.IsZero() && !c.Wanted.IsZero() && c.Wanted != g.snapshot { // the fleet will not run it by itself
		text = fmt.Sprintf("%s should run, and not %s; %s", c.Wanted, g.snapshot, text)
	}
	return text
}

// waitFlags are those of verbs that wait for a fleet.
type waitFlags struct {
	wait    bool
	timeout time.Duration
	address string
}

func (f *waitFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the fleet runs what follows: exits with 4 if that fails, with 5 at the timeout")
	f.addTimeout(cmd)
}

func (f *waitFlags) addTimeout(cmd *cobra.Command) {
	process.DurationVar(cmd.Flags(), &f.timeout, "timeout", 10*time.Minute, "how long to wait at most; 0 is without end")
	cmd.Flags().StringVar(&f.address, "address", "", "address of a running pusher to ask while waiting, such as localhost:8081")
	if cmd.Flags().Lookup("state") == nil {
		cmd.Flags().String("state", "", "state of the pusher, as for run, or its status: it says what runs")
	}
}

// waiting is somebody who waits for a fleet.
type waiting struct {
	read    func(context.Context) (report.Status, error)
	every   time.Duration
	timeout time.Duration
	errs    io.Writer                                   // has a line for each change, unless a terminal shows it
	view    func(context.Context) (channel.View, error) // of the store, nil without one
}

// waitingFor returns how to wait for the fleet of a state, or of a store in the cluster.
func (f *storeFlags) waitingFor(cmd *cobra.Command, w waitFlags) (waiting, error) {
	from := statusFlags{clusterFlags: f.clusterFlags, state: cmd.Flags().Lookup("state").Value.String(), address: w.address}
	if from.state == "" && from.address == "" && stores.InCluster(f.store) {
		from.store = f.store
	}
	if from.state == "" && from.address == "" && from.store == "" {
		return waiting{}, process.WithHint(process.Usage("it is not known where to read what the fleet runs"), "use --state with the value that pusher run has, or --address")
	}
	if from.address != "" {
		from.state = ""
	}
	read, every, err := from.source()
	out := waiting{read: read, every: every, timeout: w.timeout, errs: cmd.ErrOrStderr()}
	if f.store != "" {
		out.view = func(ctx context.Context) (view channel.View, err error) {
			err = f.with(ctx, func(store stores.Store) error {
				view, err = store.View(ctx)
				return err
			})
			return view, err
		}
	}
	return out, err
}

// seen returns why a status that reaches a goal may be from before the last act or snapshot, "" if it is not. Other
// goals name what they wait for.
func (w waiting) seen(ctx context.Context, g goal, s report.Status) string {
	if w.view == nil || !g.idle && g.condition != "Ready" {
		return ""
	}
	view, err := w.view(ctx)
	if err != nil {
		return err.Error()
	}
	return unseen(view, s, time.Now())
}

// until waits for a goal, and returns how the fleet is then.
func (w waiting) until(ctx context.Context, g goal) (string, error) {
	defer process.Doing(ctx, "")
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errTimedOut)
		defer cancel()
	}
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	last, told := "nothing is known of the fleet", ""
	for {
		s, err := w.read(ctx)
		switch done, failed := g.reached(s); {
		case ctx.Err() != nil:
		case err != nil:
			last = err.Error()
		case done != "":
			if last = w.seen(ctx, g, s); last == "" {
				return done, nil
			}
		case failed != "":
			return "", &process.ExitError{Code: process.ExitRolledBack, Err: errors.New(failed)}
		case s.Stale:
			last = s.Silence(time.Now())
		default:
			last = g.open(s)
		}
		if !process.Doing(ctx, "waiting: %s", last) && last != told {
			fmt.Fprintln(w.errs, "waiting: "+last)
			told = last
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errTimedOut) {
				return "", &process.ExitError{Code: process.ExitTimedOut, Err: fmt.Errorf("%w after %s: %s", errTimedOut, w.timeout, last)}
			}
			return "", ctx.Err()
		case <-ticker.C:
		}
	}
}

var errTimedOut = errors.New("timed out")

// say waits for a goal, and prints how the fleet is then.
func (w waiting) say(cmd *cobra.Command, out io.Writer, g goal) error {
	done, err := w.until(cmd.Context(), g)
	if err == nil {
		_, err = fmt.Fprintln(out, done)
	}
	return err
}

// waited is what the verb wait prints.
type waited struct {
	Message string `json:"message"` // how the fleet is now
}

func waitCommand() *cobra.Command {
	var f storeFlags
	var w waitFlags
	var what string
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "wait --for rollout|snapshot=SNAPSHOT|condition=NAME {--state STATE | --address HOST:PORT | --store STORE}",
		Short: "Wait for a rollout, a snapshot or a condition of the fleet",
		Long: `Wait until the fleet is where it should be:

  --for rollout              no rollout is under way
  --for snapshot=r12         the whole fleet runs this snapshot
  --for condition=Ready      the fleet runs what people want, and nothing is wrong;
                             Progressing and Degraded are conditions too

The exit code is 0 when that is so, 4 if the rollout fails, and 5 at the timeout. What is
waited for is shown on stderr. The command reads the status of the pusher, as pusher status
does. With --store it also waits until the pusher has seen the newest snapshot and the last
act there, such as a pin; without it, a pusher that has not looked yet may say that no
rollout is under way.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, err := f.goal(cmd.Context(), what)
			if err != nil {
				return err
			}
			waits, err := f.waitingFor(cmd, w)
			if err != nil {
				return err
			}
			if g.idle {
				s, err := waits.read(cmd.Context())
				if err != nil {
					return err
				}
				g.before = s.Rejected
				if s.Rollout != nil {
					g.seen = s.Rollout.Target
				}
			}
			done, err := waits.until(cmd.Context(), g)
			if err != nil {
				return err
			}
			return output.Write(cmd.OutOrStdout(), waited{done}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, done)
				return err
			})
		},
	}
	f.add(cmd)
	output.AddTo(cmd)
	w.addTimeout(cmd)
	cmd.Flags().StringVar(&what, "for", "", "what to wait for (required)")
	_ = cmd.RegisterFlagCompletionFunc("for", f.completeGoal) // fails for unknown flags only
	return cmd
}

// completeGoal completes what can be waited for, and then the snapshots.
func (f *storeFlags) completeGoal(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const snapshot = "snapshot="
	if strings.HasPrefix(typed, snapshot) {
		words, directive := f.complete(allIDs)(cmd, nil, typed)
		for i := range words {
			words[i] = snapshot + words[i]
		}
		return words, directive
	}
	words := []cobra.Completion{
		cobra.CompletionWithDesc("rollout", "no rollout is under way"), cobra.CompletionWithDesc(snapshot, "the whole fleet runs it"),
	}
	for _, c := range conditions {
		words = append(words, cobra.CompletionWithDesc("condition="+c, "of the fleet"))
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder | cobra.ShellCompDirectiveNoSpace
}

// goal reads what somebody waits for. A snapshot that is not named in full is looked for in the
// store.
func (f *storeFlags) goal(ctx context.Context, what string) (goal, error) {
	kind, name, _ := strings.Cut(what, "=")
	if i := slices.IndexFunc(conditions, func(c string) bool { return strings.EqualFold(c, name) }); kind == "condition" && i >= 0 {
		return goal{condition: conditions[i]}, nil
	}
	switch {
	case what == "":
		return goal{}, process.WithHint(process.Usage("it is not said what to wait for"), "use --for rollout, --for snapshot=r12 or --for condition=Ready")
	case what == "rollout":
		return goal{idle: true}, nil
	case kind == "snapshot" && name != "":
		if id, err := snapshots.ParseID(name); err == nil {
			return goal{snapshot: id}, nil
		}
		var g goal
		err := f.with(ctx, func(store stores.Store) (err error) {
			g.snapshot, err = stored(ctx, store, name)
			return err
		})
		return g, err
	}
	return goal{}, process.WithHint(process.Usage("--for %q is nothing to wait for", what), "use --for rollout, --for snapshot=r12 or --for condition=Ready")
}

// goalOf is what an act brings about.
func goalOf(does act, after channel.Decision) (goal, error) {
	if does.verb == channel.VerbAbort {
		return goal{undone: does.snapshot}, nil
	}
	if does.verb == channel.VerbPromote {
		return goal{snapshot: does.snapshot}, nil
	}
	if after.Hold {
		return goal{}, fmt.Errorf("there is nothing to wait for: %s", after.Message)
	}
	return goal{snapshot: after.ID}, nil
}
