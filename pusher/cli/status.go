package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// fresh is how old a status may be before it is said how old it is: a pusher that
// runs renews it every few seconds.
const fresh = 20 * time.Second

func statusCommand() *cobra.Command {
	var state, store string
	var at clusterFlags
	var watch bool
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "status {--state STATE [-w] | --store STORE}",
		Short: "Show what should run, what runs, and what is wrong",
		Long: `Show what should run, how far its rollout is, what each instance runs, and what is wrong.
The command reads the state of a pusher. The pusher need not run.

Whoever may not read the state, which is in a Secret, reads the summary beside the
snapshots of a store in the cluster: --store configmap:NAMESPACE/NAME.

With -w the command follows the state until you stop it. At a terminal it updates the
screen; otherwise it prints a line for each change. With -o json each change is an object on
a line.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case store != "" && (state != "" || watch):
				return process.Usage("--store is for the summary, without --state and -w")
			case store != "":
				fields, err := at.readStoreStatus(cmd.Context(), store)
				if err != nil {
					return err
				}
				now := time.Now()
				return output.Write(cmd.OutOrStdout(), fields, func(w io.Writer) error { return printStoreStatus(w, fields, now) })
			case state == "":
				return process.WithHint(process.Usage("no state is named"), "use the value of pusher run --state, or --store for a summary")
			}
			read := func(ctx context.Context) (observe.Status, error) { return at.readStatus(ctx, state) }
			s, err := read(cmd.Context())
			if err != nil {
				return err
			}
			if watch {
				return watchStatus(cmd.Context(), watchEvery(state), read, newWatcher(cmd.OutOrStdout(), output))
			}
			now := time.Now()
			return output.Write(cmd.OutOrStdout(), s, func(w io.Writer) error { return printStatus(w, s, now) })
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "state of the pusher, as for run: a file, or secret:NAMESPACE/NAME")
	cmd.Flags().StringVar(&store, "store", "", "store in the cluster, configmap:NAMESPACE/NAME: a summary, for which no Secret is read")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow the state, and show every change")
	at.add(cmd)
	output.AddTo(cmd)
	return cmd
}

func printStatus(w io.Writer, s observe.Status, now time.Time) error {
	line := func(name, format string, args ...any) {
		text := strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n", "\n          ")
		fmt.Fprintf(w, "%-9s %s\n", name, text)
	}
	if old := now.Sub(s.Updated); old > fresh {
		line("updated", "%s ago: the pusher does not run", process.Age(old))
	}
	if s.Leader != "" {
		line("leader", "%s, term %d", s.Leader, s.Term)
	}
	line("wanted", "%s", s.Channel.Message)
	if good := s.Good; good.IsZero() {
		line("good", "none yet")
	} else {
		line("good", "%s", good)
	}
	if r := s.Rollout; r != nil {
		line("rollout", "%s", describeRollout(*r))
		if r.Change != nil {
			line("takes", "%s", r.Change)
		}
		if r.Paused != "" {
			line("paused", "%s", r.Paused)
		}
		if r.Noted != "" {
			line("noted", "%s", r.Noted)
		}
	}
	for _, w := range describeWaits(s.Waits, now) {
		line("waits for", "%s", w)
	}
	current, earlier := rejections(s)
	for _, f := range current {
		line("rejected", "%s: %s", f.Snapshot, f.Reason)
	}
	for _, t := range s.Troubles {
		line("trouble", "%s, for %s: %s", t.About, process.Age(now.Sub(t.Since)), t.Error)
	}
	if b := s.Backends; b != nil && b.Empty > 0 {
		line("empty", "%s", describeEmpty(*b, now))
	}
	for _, i := range s.Instances {
		for _, f := range i.Findings {
			line("check", "%s: %s", i.Name, f)
		}
		for _, h := range i.ManualDrains {
			line("drained", "%s: %s", i.Name, h)
		}
	}
	fmt.Fprintln(w)
	if err := printInstances(w, s.Instances, s.Draining); err != nil || len(earlier) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\nrejected earlier: %s\n", strings.Join(earlier, ", "))
	return err
}

// rejections returns the failures that say why something newer, or something wanted, does
// not run, and the names of those that are behind the fleet by now.
func rejections(s observe.Status) (now []rollout.Failure, earlier []string) {
	for _, f := range s.Rejected {
		if !s.Good.IsZero() && f.Snapshot.Compare(s.Good) < 0 && f.Snapshot != s.Channel.Wanted {
			earlier = append(earlier, f.Snapshot.String())
			continue
		}
		now = append(now, f)
	}
	return now, earlier
}

func describeRollout(r observe.RolloutStatus) string {
	if r.Reason != "" {
		return fmt.Sprintf("%s of %s: %s", r.Phase, r.Target, r.Reason)
	}
	return fmt.Sprintf("%s %s, wave %d: %s", r.Phase, r.Target, r.Wave, strings.Join(r.Members, ", "))
}

// describeWaits returns a line for each thing that is waited for, with all whose turn
// it is.
func describeWaits(waits []rollout.Wait, now time.Time) []string {
	var lines []string
	who := map[string][]string{}
	for _, w := range waits {
		line := w.For
		if !w.Until.IsZero() {
			line += ", in " + max(w.Until.Sub(now), 0).Round(time.Second).String()
		}
		if _, known := who[line]; !known {
			lines = append(lines, line)
		}
		who[line] = append(who[line], w.Instance)
	}
	for i, line := range lines {
		if names := strings.TrimSpace(strings.Join(who[line], " ")); names != "" {
			lines[i] += ": " + names
		}
	}
	return lines
}

// describeEmpty says which backends have no server up, and for how long.
func describeEmpty(b observe.BackendsStatus, now time.Time) string {
	const most = 5
	text := fmt.Sprintf("%d of %d backends have no server up", b.Empty, b.All)
	for _, e := range b.List[:min(len(b.List), most)] {
		why := "no endpoints"
		if len(e.Instances) > 0 {
			why = "failing checks on " + strings.Join(e.Instances, " ")
		}
		text += fmt.Sprintf("\n%s: %s, for %s", e.Backend, why, process.Age(now.Sub(e.Since)))
	}
	if more := b.Empty - most; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

func printInstances(w io.Writer, instances, draining []observe.InstanceStatus) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INSTANCE\tZONE\tRUNNING\tIN SYNC\tERROR")
	for _, i := range instances {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", i.Name, orDash(i.Zone), orDash(running(i)), inSync(i), orDash(firstLine(cmp.Or(i.Error, i.Pending))))
	}
	for _, i := range draining {
		fmt.Fprintf(table, "%s\t%s\t%s\tdraining\t%s\n", i.Name, orDash(i.Zone), orDash(running(i)), orDash(firstLine(i.Error)))
	}
	return table.Flush()
}

func running(i observe.InstanceStatus) string {
	if i.Running.IsZero() && i.Node != "" {
		return "(" + i.Node + ")"
	}
	return i.Running.String()
}

func inSync(i observe.InstanceStatus) string {
	switch {
	case i.Refused:
		return "refused"
	case !i.Reachable:
		return "unreachable"
	case i.InSync:
		return "yes"
	}
	return "no"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func firstLine(s string) string {
	line, rest, _ := strings.Cut(s, "\n")
	if rest != "" {
		line += " …"
	}
	return line
}

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
	seen observe.Status
}

// watchStatus shows the status in a state until ctx is done.
func watchStatus(ctx context.Context, every time.Duration, read func(context.Context) (observe.Status, error), w *watcher) error {
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

func (w *watcher) show(s observe.Status, now time.Time) error {
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
func (w *watcher) showJSON(s observe.Status) error {
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
func (w *watcher) draw(s observe.Status, now time.Time) error {
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
func progress(s observe.Status) string {
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
func changesOf(old, s observe.Status) []string {
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
	before := map[string]observe.InstanceStatus{}
	for _, i := range old.Instances {
		before[i.Name] = i
	}
	for _, i := range s.Instances {
		was, known := before[i.Name]
		if line := instanceLine(i); !known || line != instanceLine(was) {
			lines = append(lines, line)
		}
	}
	for _, i := range s.Draining {
		if !slices.ContainsFunc(old.Draining, named(i.Name)) {
			lines = append(lines, i.Name+": drains")
		}
	}
	for _, i := range slices.Concat(old.Instances, old.Draining) {
		if !slices.ContainsFunc(slices.Concat(s.Instances, s.Draining), named(i.Name)) {
			lines = append(lines, i.Name+": left the fleet")
		}
	}
	return lines
}

func named(name string) func(observe.InstanceStatus) bool {
	return func(i observe.InstanceStatus) bool { return i.Name == name }
}

func rolloutLine(s observe.Status) string {
	switch {
	case s.Rollout != nil:
		return "rollout: " + describeRollout(*s.Rollout)
	case s.Good.IsZero():
		return "rollout: none yet"
	}
	return "rollout: none, the fleet runs " + s.Good.String()
}

func takesLine(s observe.Status) string {
	if s.Rollout == nil || s.Rollout.Change == nil {
		return ""
	}
	return "takes: " + s.Rollout.Change.String()
}

func instanceLine(i observe.InstanceStatus) string {
	line := fmt.Sprintf("%s: runs %s, in sync: %s", i.Name, orDash(running(i)), inSync(i))
	if i.Error != "" {
		line += ", " + firstLine(i.Error)
	}
	for _, h := range i.ManualDrains {
		line += fmt.Sprintf(", drained manually: %s", h)
	}
	return line
}

func troubleLines(s observe.Status) []string {
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

// readStoreStatus returns what the pusher of a store in the cluster last said of its fleet,
// in a ConfigMap. It needs no right to read any Secret.
func (f *clusterFlags) readStoreStatus(ctx context.Context, store string) (map[string]string, error) {
	name, err := configmapstore.Parse(store)
	if err != nil {
		return nil, process.WithHint(process.Usage("--store: %w", err), "only a store in the cluster has the status beside it; use --state for others")
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	found, err := client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, configmapstore.StatusName(name.Name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && found.Data["phase"] == "" {
		return nil, process.WithHint(fmt.Errorf("no pusher of %s has said anything yet", store), "pusher run writes it once it runs with this store")
	}
	if err != nil {
		return nil, fmt.Errorf("read the status of %s: %w", store, err)
	}
	return found.Data, nil
}

// printStoreStatus prints it, with when it changed last: a pusher writes only what changes.
func printStoreStatus(w io.Writer, fields map[string]string, now time.Time) error {
	for _, line := range []struct{ name, key string }{
		{"phase", "phase"}, {"message", "message"}, {"wanted", "snapshot"}, {"newest", "newest"}, {"delivered", "delivered"},
	} {
		if fields[line.key] != "" {
			fmt.Fprintf(w, "%-9s %s\n", line.name, fields[line.key])
		}
	}
	if at, err := time.Parse(time.RFC3339, fields["updated"]); err == nil {
		fmt.Fprintf(w, "%-9s %s ago\n", "changed", process.Age(now.Sub(at)))
	}
	_, err := fmt.Fprintf(w, "%-9s %s of %s run it, %s backends have no server up\n", "instances", fields["running"], fields["instances"], fields["emptyBackends"])
	return err
}
