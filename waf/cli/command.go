// Package cli has the commands of the program waf: flags into options, options into a run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/waf/agent"
	"github.com/hapsnap/hapsnap/waf/policy"
)

// NewCommand returns the command "waf" with its verbs.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "waf",
		Short: "Inspect requests for HAProxy with the OWASP Core Rule Set",
		Args:  process.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	process.WithVersion(root)
	root.AddCommand(runCommand(), process.VersionCommand())
	process.Completion{}.AddTo(root)
	process.AddExamples(root, map[string][]string{"run": {"run --listen unix@/run/hapsnap/waf.sock --metrics-address :8080"}})
	process.GroupHelp(root)
	return root
}

type runFlags struct {
	log     process.LogOptions
	listen  string
	mode    string
	address string
	audit   bool
	options agent.Options
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run --listen ADDRESS",
		Short: "Answer HAProxy, until it is stopped",
		Long: `Answer what HAProxy asks about requests: whether they are to be let through.

HAProxy asks in the Stream Processing Offload Protocol and sends the policy with each request.
The agent inspects the request with the OWASP Core Rule Set ` + policy.RulesVersion + ` or ` + policy.PreviousRulesVersion + `,
whichever the snapshot was made for: the program carries both. For a snapshot with another
version it takes the newest, and counts that in hapsnap_waf_other_rules_total. With
--exact-rules it answers an error.

The agent writes requests that it denies, would deny or cannot inspect to stdout, each as a
line of JSON. It speaks to whoever connects: let nothing but HAProxy reach its address.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.log.AddFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "", "address that HAProxy connects to: unix@PATH, or HOST:PORT such as :9000 (required)")
	flags.StringVar(&f.mode, "socket-mode", "0660", "permissions of the socket of unix@PATH, in octal digits")
	flags.StringVar(&f.address, "metrics-address", "", "address for /healthz, /readyz and /metrics, such as :8080; none if empty")
	flags.BoolVar(&f.audit, "audit", true, "write the audit log to stdout")
	process.DurationVar(flags, &f.options.Deadline, "deadline", agent.DefaultDeadline, "how long a request may wait and be inspected before the answer is an error; has to be shorter than HAProxy's timeout processing")
	flags.IntVar(&f.options.Parallel, "parallel", 0, "how many requests are inspected at a time (default: four times as many as of one route)")
	flags.IntVar(&f.options.PerRoute, "parallel-per-route", 0, "how many requests of one route are inspected at a time (default: as many as there are processors)")
	flags.IntVar(&f.options.MaxRequests, "max-requests", agent.DefaultMaxRequests, "how many requests may wait and be inspected; the answer to more is an error")
	flags.IntVar(&f.options.MaxConnections, "max-connections", agent.DefaultMaxConnections, "how many connections there may be")
	flags.IntVar(&f.options.MaxFrame, "max-frame-size", agent.DefaultMaxFrame, "how long a message may be, in bytes; HAProxy sends no more than tune.bufsize")
	flags.IntVar(&f.options.MaxPolicies, "max-policies", agent.DefaultMaxPolicies, "how many policies are kept prepared, at about 3 MB each")
	flags.BoolVar(&f.options.ExactRules, "exact-rules", false, "answer an error to a HAProxy that asks for a version of the rules that the agent does not carry: its protected routes are then closed, unless their policy says failure: open")
	process.DurationVar(flags, &f.options.Grace, "grace", agent.DefaultGrace, "how long requests may go on when the agent is asked to stop")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command) error {
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	mode, err := f.check()
	if err != nil {
		return err
	}
	listener, err := listen(cmd.Context(), f.listen, mode)
	if err != nil {
		return err
	}
	defer listener.Close()
	process.Started(log, nil)
	f.options.Log, f.options.Metrics = log, process.NewRegistry()
	if f.audit {
		f.options.Audit = cmd.OutOrStdout()
	}
	a := agent.New(f.options)
	ctx, stop := context.WithCancel(cmd.Context())
	server := process.Server{Address: f.address, Ready: a.Ready, Metrics: f.options.Metrics, Log: log}
	_, wait, err := server.Start(ctx)
	if err != nil {
		stop()
		return err
	}
	defer wait()
	defer stop()
	log.Info("listening", "address", listener.Addr().String(), "rules", policy.RulesVersion+", "+policy.PreviousRulesVersion)
	return a.Run(ctx, listener)
}

// check returns the permissions of the socket.
func (f *runFlags) check() (fs.FileMode, error) {
	if f.listen == "" {
		return 0, process.WithHint(process.Usage("no address to listen on"), "use --listen with unix@PATH or HOST:PORT")
	}
	mode, err := strconv.ParseUint(f.mode, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, process.Usage("--socket-mode: %q is no set of permissions, such as 0660", f.mode)
	}
	for _, flag := range []struct {
		name         string
		value, least int
	}{
		{"max-requests", f.options.MaxRequests, 1}, {"max-connections", f.options.MaxConnections, 1}, {"max-policies", f.options.MaxPolicies, 1},
		{"max-frame-size", f.options.MaxFrame, leastFrame}, {"parallel", f.options.Parallel, 0}, {"parallel-per-route", f.options.PerRoute, 0},
	} {
		if flag.value < flag.least {
			return 0, process.Usage("--%s=%d: want %d or more", flag.name, flag.value, flag.least)
		}
	}
	switch {
	case f.options.Deadline <= 0:
		return 0, process.Usage("--deadline=%s: the duration must be more than zero", f.options.Deadline)
	case f.options.Grace <= 0:
		return 0, process.Usage("--grace=%s: the duration must be more than zero", f.options.Grace)
	}
	if err := process.CheckAddress("metrics-address", f.address, "HOST:PORT", ":8080"); err != nil {
		return 0, err
	}
	if path, isUnix := strings.CutPrefix(f.listen, "unix@"); !isUnix {
		if err := process.CheckAddress("listen", f.listen, "unix@PATH or HOST:PORT", ":8080"); err != nil {
			return 0, err
		}
	} else if path == "" {
		return 0, process.WithHint(process.Usage("--listen: %q names no socket", f.listen), "use unix@PATH, such as unix@/run/hapsnap/waf.sock")
	}
	return fs.FileMode(mode), nil
}

// leastFrame is the smallest --max-frame-size that the command takes, in bytes.
const leastFrame = 1024

// listen opens the address. It replaces the socket of an agent that is gone, but not one that still answers.
func listen(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix@")
	if !isUnix {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		return listener, nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if conn, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("listen: somebody listens on %s", path)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove a socket that nobody listens on: %w", err)
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		listener.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
