package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/discovery"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/preflight"
)

func checkCommand() *cobra.Command {
	var at clusterFlags
	var file string
	var limit time.Duration
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "check --instances FILE",
		Short: "Check that the pusher can push to each instance",
		Long: `Check each instance of a fleet for whatever would make a push fail, and print how to mend
it. The command checks credentials, versions, the master socket, directories, permissions,
whether the API survives the first push, limits, statistics and the clock.

The command changes nothing that runs. It uploads files that no configuration names, and
deletes them again. It has HAProxy validate configurations that are not kept.

The exit code is 1 if an instance has an error. Warnings do not count.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return process.WithHint(process.Usage("--instances is missing"), "name the file with the Fleet")
			}
			if err := checkFleetFile(file); err != nil {
				return err
			}
			if limit <= 0 {
				return process.Usage("--timeout=%s: a timeout must be more than zero", limit)
			}
			instances, err := at.instances(cmd.Context(), file, limit)
			if invalid, ok := errors.AsType[fleet.InvalidError](err); ok {
				fmt.Fprintln(cmd.ErrOrStderr(), invalid)
				return process.Invalid(nil)
			}
			if err != nil {
				return err
			}
			report := preflight.Check(cmd.Context(), instances, limit)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			err = output.Write(cmd.OutOrStdout(), report, func(w io.Writer) error { return printReport(w, report) })
			if err == nil && !report.OK {
				err = &process.ExitError{Code: process.ExitFailure}
			}
			return err
		},
	}
	addFleet(cmd.Flags(), &file, "file that lists the instances, as for run (required)")
	process.DurationVar(cmd.Flags(), &limit, "timeout", 30*time.Second, "how long to look at each instance")
	at.add(cmd)
	output.AddTo(cmd)
	return cmd
}

// instances returns the instances of a fleet's file, and those that are pods now.
func (f *clusterFlags) instances(ctx context.Context, file string, limit time.Duration) ([]fleet.Instance, error) {
	spec, err := fleet.Read(file)
	if err != nil && spec.Name == "" { // with a name, only some instances cannot be used: the check says so of each
		return nil, err
	}
	all := spec.Instances
	if spec.Pods != nil {
		found, err := f.pods(ctx, *spec.Pods, limit)
		if err != nil {
			return nil, fmt.Errorf("look for the pods of the fleet: %w", err)
		}
		all = slices.Concat(all, found)
	}
	if len(all) == 0 {
		return nil, process.WithHint(fmt.Errorf("the fleet of %s has no instances", file), "list them, or mend the selector of its pods")
	}
	return all, nil
}

// pods returns the instances that are pods, as they are known first.
func (f *clusterFlags) pods(ctx context.Context, spec fleet.Pods, limit time.Duration) ([]fleet.Instance, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var found []fleet.Instance
	var last error
	discovery.Watch(ctx, client, spec, slog.New(slog.DiscardHandler), func(instances []fleet.Instance, err error) {
		found, last = slices.DeleteFunc(instances, func(i fleet.Instance) bool { return i.Draining }), err
		if err == nil {
			cancel()
		}
	})
	return found, last
}

// printReport prints what instances said of themselves, such as their versions, without what would command a terminal.
func printReport(w io.Writer, r preflight.Report) error {
	hang := func(first, others, text string) { process.Hang(w, first, others, printable.Lines(text)) }
	wrong := 0
	for _, i := range r.Instances {
		versions := strings.Join(strings.Fields("API "+orDash(strings.TrimSpace(i.API))+", HAProxy "+orDash(i.HAProxy)), " ")
		if len(i.Findings) == 0 {
			hang("", "", fmt.Sprintf("%s: ok (%s)", i.Name, versions))
			continue
		}
		hang("", "", fmt.Sprintf("%s: %s (%s)", i.Name, i.URL, versions))
		for _, f := range i.Findings {
			level := "error"
			if f.Warning {
				level = "warning"
			}
			hang("  ", "    ", fmt.Sprintf("%s: %s: %s", level, f.Check, f.Message))
			if f.Hint != "" {
				hang("    hint: ", "      ", f.Hint)
			}
		}
		if slices.ContainsFunc(i.Findings, func(f preflight.Finding) bool { return !f.Warning }) {
			wrong++
		}
	}
	_, err := fmt.Fprintf(w, "%d of %d instances are ready for a push\n", len(r.Instances)-wrong, len(r.Instances))
	return err
}
