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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// statusFlags are those of the verb status.
type statusFlags struct {
	clusterFlags
	state, store, address string
	watch, exitCode       bool
	output                process.OutputFlag
}

func statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status {--state STATE | --address HOST:PORT} [-w] | --store STORE",
		Short: "Show what should run, what runs, and what is wrong",
		Long: `Show what should run, how far its rollout is, what each instance runs, and what is wrong.
The command reads the state of a pusher, or the status that the pusher writes into a
ConfigMap, for which no Secret is read: --state configmap:NAMESPACE/NAME. With --store it
is the ConfigMap beside the snapshots of a store in the cluster. The pusher need not run: a
status that is old is shown as old. With --address the command asks a running pusher, at the
address of its --metrics-address.

With -w the command follows the status until you stop it. At a terminal it updates the
screen; otherwise it prints a line for each change. With -o json each change is an object on
a line.

The exit code is 0 if there is an answer and 1 if there is none. With --exit-code it is 4 if
the newest snapshot failed and was undone, and otherwise 1 if the fleet is not Ready: a rollout
is under way, a person must act, or the status is old.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run: a file, or secret:NAMESPACE/NAME; or its status, configmap:NAMESPACE/NAME")
	cmd.Flags().StringVar(&f.store, "store", "", "store in the cluster, configmap:NAMESPACE/NAME, beside which the status is")
	cmd.Flags().StringVar(&f.address, "address", "", "address of a running pusher, such as localhost:8081")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "follow the state, and show every change")
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 4 or 1 if the fleet is not as it should be")
	f.add(cmd)
	f.output.AddListTo(cmd)
	return cmd
}

func (f *statusFlags) run(cmd *cobra.Command) error {
	read, every, err := f.source()
	if err != nil {
		return err
	}
	s, err := read(cmd.Context())
	if err != nil {
		return err
	}
	if f.watch {
		process.Doing(cmd.Context(), "") // the page is
		return watchStatus(cmd.Context(), every, read, newWatcher(cmd.OutOrStdout(), f.output))
	}
	now := time.Now()
	if err := f.output.Write(cmd.OutOrStdout(), listedStatus{s}, func(w io.Writer) error { return printStatus(w, s, now) }); err != nil {
		return err
	}
	if code := exitCode(s); f.exitCode && code != process.ExitOK {
		return &process.ExitError{Code: code}
	}
	return nil
}

// exitCode returns the code of --exit-code.
func exitCode(s report.Status) int {
	switch ready := s.Ready(); {
	case ready.Status == metav1.ConditionTrue:
		return process.ExitOK
	case ready.Reason == report.ReasonSnapshotFailed:
		return process.ExitRolledBack
	}
	return process.ExitFailure
}

// source returns a function that reads the status, and how often to call it to follow the status.
func (f *statusFlags) source() (read func(context.Context) (report.Status, error), every time.Duration, err error) {
	named := 0
	for _, name := range []string{f.state, f.store, f.address} {
		if name != "" {
			named++
		}
	}
	switch {
	case named > 1:
		return nil, 0, process.Usage("only one of --state, --store and --address says where the status is")
	case f.address != "":
		return func(ctx context.Context) (report.Status, error) { return askPusher(ctx, f.address) }, time.Second, nil
	case f.store != "":
		place, err := placeBeside(f.store)
		if err != nil {
			return nil, 0, process.WithHint(process.Usage("--store: %w", err), "only a store in the cluster has the status beside it; use --state for others")
		}
		return func(ctx context.Context) (report.Status, error) { return f.readStatus(ctx, place) }, time.Second, nil
	case f.state == "":
		return nil, 0, process.WithHint(process.Usage("no state is named"), "use the value of pusher run --state, or --store for a store in the cluster")
	}
	every = 250 * time.Millisecond
	if inSecret(f.state) || isPlace(f.state) {
		every = time.Second
	}
	return func(ctx context.Context) (report.Status, error) { return f.readStatus(ctx, f.state) }, every, nil
}

// placeBeside names the ConfigMap with the status beside a store in the cluster.
func placeBeside(store string) (string, error) {
	name, err := configmapstore.Parse(store)
	return configmapstore.Scheme + name.Namespace + "/" + configmapstore.StatusName(name.Name), err
}

// statusTimeout is how long a pusher may take to answer.
const statusTimeout = 10 * time.Second

// askPusher asks a pusher that runs.
func askPusher(ctx context.Context, address string) (report.Status, error) {
	var s report.Status
	if err := CheckAddress("address", address); err != nil {
		return s, err
	}
	now, err := process.AskStatus(ctx, address, statusTimeout, &s)
	if err != nil {
		return s, process.WithHint(fmt.Errorf("ask the pusher: %w", err), "name the address that pusher run was given with --metrics-address, or use --state if none runs")
	}
	if s.Conditions == nil {
		return s, fmt.Errorf("ask the pusher: what answers at %s is not a pusher, or has not begun", address)
	}
	return s.AsOf(now, report.FreshState), nil
}

func printStatus(w io.Writer, s report.Status, now time.Time) error {
	line := func(name, format string, args ...any) { process.Label(w, name, format, args...) }
	switch {
	case s.Stale && now.Before(s.Updated):
		line("updated", "%s", s.Silence(now))
	case s.Stale:
		line("updated", "%s ago: the pusher does not run, or cannot say so; nothing below is newer", process.Age(now.Sub(s.Updated)))
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
	err := printInstances(w, s.Instances, s.Draining)
	if s.Omitted > 0 {
		fmt.Fprintf(w, "and %d more, which run what is wanted\n", s.Omitted)
	}
	if err != nil || len(earlier) == 0 {
		return err
	}
	_, err = fmt.Fprintf(w, "\nrejected earlier: %s\n", strings.Join(earlier, ", "))
	return err
}

// rejections returns the failures that say why something newer, or something wanted, does
// not run, and the names of those that are behind the fleet by now.
func rejections(s report.Status) (now []rollout.Failure, earlier []string) {
	for _, f := range s.Rejected {
		if !s.Good.IsZero() && f.Snapshot.Compare(s.Good) < 0 && f.Snapshot != s.Channel.Wanted {
			earlier = append(earlier, f.Snapshot.String())
			continue
		}
		now = append(now, f)
	}
	return now, earlier
}

func describeRollout(r report.Rollout) string {
	if r.Reason != "" {
		return fmt.Sprintf("%s of %s: %s", r.Phase, r.Target, r.Reason)
	}
	return fmt.Sprintf("%s %s, wave %d: %s", r.Phase, r.Target, r.Wave, strings.Join(r.Members, ", "))
}

// describeWaits returns a line for each cause of waiting, with the instances that wait.
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
func describeEmpty(b report.Backends, now time.Time) string {
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

func printInstances(w io.Writer, instances, draining []report.Instance) error {
	table := process.Table{Columns: []process.Column{
		{Title: "INSTANCE"}, {Title: "ZONE", Spare: true}, {Title: "RUNNING"}, {Title: "IN SYNC", Mood: syncMood}, {Title: "NODE", Wide: true}, {Title: "PID", Wide: true}, {Title: "ERROR", Cut: true},
	}}
	add := func(i report.Instance, sync string) {
		table.Add(i.Name, orDash(i.Zone), orDash(running(i)), sync, orDash(i.Node), orDash(strings.TrimLeft(strconv.Itoa(i.PID), "0")), orDash(cmp.Or(i.Error, i.Pending)))
	}
	for _, i := range instances {
		add(i, inSync(i))
	}
	for _, i := range draining {
		add(i, "draining")
	}
	return table.Write(w)
}

func syncMood(cell string) process.Mood {
	switch cell {
	case "yes":
		return process.Good
	case "no":
		return process.Waiting
	case "refused", "unreachable":
		return process.Bad
	}
	return process.Plain
}

// listedStatus is a status whose names are those of the instances.
type listedStatus struct{ report.Status }

// Names returns the names of the instances.
func (n listedStatus) Names() []string {
	var out []string
	for _, i := range n.Instances {
		out = append(out, i.Name)
	}
	return out
}

func running(i report.Instance) string {
	if i.Running.IsZero() && i.Node != "" {
		return "(" + i.Node + ")"
	}
	return i.Running.String()
}

func inSync(i report.Instance) string {
	switch {
	case i.Refused:
		return "refused"
	case i.Denied:
		return "wrong credentials"
	case i.Unasked():
		return "not known yet"
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

// watcher shows a status repeatedly: at a terminal as a page that it draws again, elsewhere as a line
// for each change.
type watcher struct {
	out  io.Writer
	page bool
	json bool
	last string // what was shown
	seen report.Status
}

// watchStatus shows the status in a state until ctx is done.
func watchStatus(ctx context.Context, every time.Duration, read func(context.Context) (report.Status, error), w *watcher) error {
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

func (w *watcher) show(s report.Status, now time.Time) error {
	switch {
	case w.json:
		// A status is printed on one line, if it is another one.
		bare := s
		bare.Updated = time.Time{}
		key, err := json.Marshal(bare)
		if err != nil || string(key) == w.last {
			return err
		}
		w.last = string(key)
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = w.out.Write(append(printable.JSON(line), '\n'))
		return err
	case w.page:
		// The page is drawn where it was drawn before. Each line is erased to its end, and what was below as well, so
		// that nothing flickers.
		const home, endOfLine, below, all = "\x1b[H", "\x1b[K\n", "\x1b[J", "\x1b[2J"
		var page bytes.Buffer
		if err := printStatus(process.On(&page, w.out, false), s, now); err != nil {
			return err
		}
		if s.Rollout != nil {
			const width = 30
			done := 0
			for _, i := range s.Instances {
				if i.Reachable && i.Running == s.Rollout.Target {
					done++
				}
			}
			filled := width * done / max(len(s.Instances), 1)
			fmt.Fprintf(&page, "\n%s\n", fmt.Sprintf("[%s%s] %d of %d run %s", strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, len(s.Instances), s.Rollout.Target))
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
	defer func() { w.seen = s }()
	for _, line := range changesOf(w.seen, s) {
		if _, err := fmt.Fprintf(w.out, "%s %s\n", s.Updated.UTC().Format(time.RFC3339), line); err != nil {
			return err
		}
	}
	return nil
}

// changesOf returns a line for each change.
func changesOf(old, s report.Status) []string {
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
	before := map[string]report.Instance{}
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

func named(name string) func(report.Instance) bool {
	return func(i report.Instance) bool { return i.Name == name }
}

func rolloutLine(s report.Status) string {
	switch {
	case s.Rollout != nil:
		return "rollout: " + describeRollout(*s.Rollout)
	case s.Good.IsZero():
		return "rollout: none yet"
	}
	return "rollout: none, the fleet runs " + s.Good.String()
}

func takesLine(s report.Status) string {
	if s.Rollout == nil || s.Rollout.Change == nil {
		return ""
	}
	return "takes: " + s.Rollout.Change.String()
}

func instanceLine(i report.Instance) string {
	line := fmt.Sprintf("%s: runs %s, in sync: %s", i.Name, orDash(running(i)), inSync(i))
	if i.Error != "" {
		line += ", " + firstLine(i.Error)
	}
	for _, h := range i.ManualDrains {
		line += fmt.Sprintf(", drained manually: %s", h)
	}
	return line
}

func troubleLines(s report.Status) []string {
	var lines []string
	for _, t := range s.Troubles {
		lines = append(lines, t.About+": "+firstLine(t.Error))
	}
	return lines
}

// listChanges returns what was added and what was removed.
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
