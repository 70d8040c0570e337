// Package process is the plumbing that all programs need and that does not concern HAProxy: signals and exit codes,
// what people type and read (verbs, flags, help texts, hints, tables, progress), logs, the memory limit, and the HTTP server for
// health, metrics and status.
//
// It knows neither the compiler nor the pusher.
package process

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// The exit codes of all programs.
const (
	ExitOK          = 0
	ExitFailure     = 1   // our failure, or the environment's
	ExitUsage       = 2   // flags or arguments
	ExitInvalid     = 3   // the input is invalid
	ExitRolledBack  = 4   // a rollout failed and was rolled back
	ExitTimedOut    = 5   // what was waited for did not come in time
	ExitInterrupted = 130 // by SIGINT, SIGTERM or SIGHUP, before the work was done
)

// ExitError is an error with an exit code of its own. Err may be nil, if the error was already printed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the wrapped error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *ExitError) Unwrap() error { return e.Err }

// Usage returns a usage error, exit code 2.
func Usage(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// Invalid returns an error for invalid input, exit code 3.
func Invalid(err error) error { return &ExitError{Code: ExitInvalid, Err: err} }

// hinted is an error with advice for the user.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// WithHint adds advice to err, which [Main] prints on an indented line of its own. A nil error stays nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return hinted{err, hint}
}

// Hint returns the advice that err carries, or "".
func Hint(err error) string {
	if h, ok := errors.AsType[hinted](err); ok {
		return h.hint
	}
	return ""
}

// sameSignal is for how long after a signal others count as the same one. Who ends a process group as well as the process,
// such as timeout(1), sends it twice. When a terminal is closed, both the kernel and the shell send SIGHUP.
const sameSignal = 500 * time.Millisecond

// Main runs a command line until it ends or the process is asked to stop, and
// returns the exit code. SIGINT, SIGTERM and SIGHUP cancel the command's context; another
// signal half a second later, or after that, ends the process at once. Under nohup a SIGHUP does
// nothing. Errors are printed to stderr here, and nowhere else.
func Main(root *cobra.Command) int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP) // the terminal was closed: the work ends as usual, and a Lease is given back
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	out := &output{to: root.OutOrStdout()}
	root.SetOut(out)
	brief()
	err := root.ExecuteContext(ctx)
	if e, printed := errors.AsType[*ExitError](err); out.failure() != nil && (err == nil || printed && e.Err == nil) {
		err = out.failure()
	}
	report(root.ErrOrStderr(), root.Name(), err)
	return Code(ctx, err)
}

// output is standard output. It keeps the first error, since commands do not look at each line that they write, and
// somebody who sent the output to a file on a full disk would take a part of it for the whole.
type output struct {
	to   io.Writer
	lock sync.Mutex
	err  error
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // a reader that is gone wants no more
		o.lock.Lock()
		o.err = cmp.Or(o.err, err)
		o.lock.Unlock()
	}
	return n, err
}

func (o *output) failure() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.err
}

// Interruptible computes a value, and returns the error of ctx as soon as that ends. It is for long computations
// that look at no context. What compute does after that is lost, so it may write nothing.
func Interruptible[T any](ctx context.Context, compute func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := compute()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if ctx.Err() == nil {
			return r.value, r.err
		}
	case <-ctx.Done():
	}
	var nothing T
	return nothing, ctx.Err()
}

// Code returns the exit code for the error of a command that ran under ctx.
func Code(ctx context.Context, err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return ExitFailure
}

// report prints err as a user should see it.
func report(w io.Writer, program string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if e, ok := errors.AsType[*ExitError](err); ok && e.Err == nil {
		return
	}
	fmt.Fprintf(w, "%s: %s\n", program, printable.Lines(err.Error()))
	if hint := Hint(err); hint != "" {
		fmt.Fprintf(w, "\thint: %s\n", printable.Lines(hint))
	}
}

// Args turns the errors of a cobra argument check into usage errors, which say how the command is written. For a
// command with verbs, the error names the verb that may be meant.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case cmd.HasAvailableSubCommands() && len(args) > 0:
			return WithHint(Usage("%w", err), verbHint(cmd, args[0]))
		}
		given := fmt.Sprintf("%d arguments are given", len(args))
		switch len(args) {
		case 0:
			given = "no argument is given"
		case 1:
			given = fmt.Sprintf("one argument is given, %q", args[0])
		}
		hint := seeHelp(cmd)
		if f := cmd.Flags().Lookup("filename"); f != nil && !f.Changed && len(args) == 1 {
			hint = "manifests are named with -f, as in -f " + args[0] + "; " + hint
		}
		return WithHint(Usage("%s; the command is %s", given, strings.TrimSuffix(cmd.UseLine(), " [flags]")), hint)
	}
}

// version is set by the linker: -X github.com/hapsnap/hapsnap/internal/process.version=v1.2.3
var version string

// Version returns the version of the program: the one that the linker set, else the version of the module, else
// "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// WithVersion gives a program the flag --version, which says what the verb version does.
func WithVersion(root *cobra.Command) {
	root.Version = Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
}

// VersionCommand returns the verb that prints the program's name and version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Name(), Version())
			return err
		},
	}
}

// Completion says which values the flags of a program take, for completion by shells. Flags that it does not
// list take files. It knows the flags of the log.
type Completion struct {
	Folders []string            // flags that take a directory
	Words   map[string][]string // flags that take one of a few words
}

// logWords are the values of the flags of [LogOptions].
var logWords = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"text", "json"},
}

// AddTo adds the completion to all verbs of a program that have the flags. Verbs without arguments complete
// nothing.
func (c Completion) AddTo(root *cobra.Command) {
	words := maps.Clone(logWords)
	maps.Copy(words, c.Words)
	for _, cmd := range root.Commands() {
		for _, name := range c.Folders {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.MarkFlagDirname(name) // fails for unknown flags only
			}
		}
		for _, name := range slices.Sorted(maps.Keys(words)) {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words[name], cobra.ShellCompDirectiveNoFileComp))
			}
		}
		if cmd.ValidArgsFunction == nil && !takesArguments(cmd) {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// completionTimeout is how long a shell waits for completions.
const completionTimeout = 2 * time.Second

// Bounded returns a completion that asks a store or a cluster. The shell is blocked meanwhile, so the
// completion ends after two seconds, with nothing.
func Bounded(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		cmd.SetContext(ctx)
		type answer struct {
			words     []cobra.Completion
			directive cobra.ShellCompDirective
		}
		answers := make(chan answer, 1)
		go func() {
			words, directive := complete(cmd, args, typed)
			answers <- answer{words, directive}
		}()
		select {
		case a := <-answers:
			return a.words, a.directive
		case <-ctx.Done():
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// takesArguments reports whether a verb takes one argument, or two.
func takesArguments(cmd *cobra.Command) bool {
	return cmd.ValidateArgs([]string{""}) == nil || cmd.ValidateArgs([]string{"", ""}) == nil
}

// Started is for programs that keep running. It sets the memory limit of Go (GOMEMLIMIT) to nine tenths of the
// container's, so that Go collects garbage before the kernel kills the process, and calls [Lasting]. It logs
// the version, the limits and the digest of the program's configuration. AUTOMEMLIMIT sets another ratio, such
// as 0.8, or off. A GOMEMLIMIT in the environment takes precedence. The Go runtime itself finds out how many
// CPUs to use (GOMAXPROCS).
func Started(log *slog.Logger, configuration []byte) {
	if _, err := memlimit.Set(); err != nil {
		log.Debug("memory limit not set", "err", err)
	}
	Lasting()
	log.Info("started", "version", Version(), "memory", memoryLimit(), "cpus", runtime.GOMAXPROCS(0), "configuration", digestOf(configuration))
}

// briefGarbage is how much garbage a command may make before Go collects it, in percent of the memory in use.
// lastingGarbage is Go's own setting, for programs that keep running.
const (
	briefGarbage   = 400
	lastingGarbage = 100
)

// brief makes Go collect garbage less often: most commands read, answer and end, and the collection is up to a
// third of their time. If the container has a memory limit, Go keeps to it as in [Started].
func brief() {
	_, _ = memlimit.Set() // without a limit there is nothing to keep to
	collect(briefGarbage)
}

// Lasting makes Go collect garbage as usual, for a program that keeps running.
func Lasting() { collect(lastingGarbage) }

// collect sets how much garbage is made before Go collects it. A GOGC in the environment takes precedence.
func collect(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// none is what the log shows for a missing limit or configuration.
const none = "none"

// memoryLimit returns the memory limit of Go in bytes, or none.
func memoryLimit() any {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return none
}

// digestOf returns a few characters that differ between configurations.
func digestOf(configuration []byte) string {
	if len(configuration) == 0 {
		return none
	}
	sum := sha256.Sum256(configuration)
	return hex.EncodeToString(sum[:5])
}

// FileForDigest returns the content of a file for [Started], or none if the file cannot be read. The code that
// needs the file reports that error.
func FileForDigest(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return content
}

// PanicError is a panic as an error: a mistake in the program that some input triggered.
type PanicError struct {
	Value any
	// Place is the function that panicked, with its file's line.
	Place string
}

// Error says what happened and where.
func (p PanicError) Error() string { return fmt.Sprintf("panic: %v, in %s", p.Value, p.Place) }

// Caught calls a function, and returns its error, or its panic as a [PanicError].
func Caught(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicOf(value)
		}
	}()
	return do()
}

// panicOf is called while a panic is under way.
func panicOf(value any) PanicError {
	if err, ok := value.(error); ok {
		if p, ok := errors.AsType[PanicError](err); ok {
			return p // from another goroutine
		}
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = true
		case panicking:
			return PanicError{value, fmt.Sprintf("%s, line %d", f.Function, f.Line)}
		}
		if !more {
			return PanicError{value, "an unknown place"}
		}
	}
}

// Catcher passes panics of several goroutines to the one that started them. A panic that its goroutine does not
// catch ends the whole program, whatever the caller does.
type Catcher struct {
	lock  sync.Mutex
	first error
}

// Do calls a function and keeps its panic.
func (c *Catcher) Do(do func()) {
	err := Caught(func() error { do(); return nil })
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.first == nil {
		c.first = err
	}
}

// Rethrow panics with the first panic that was kept, if there was one.
func (c *Catcher) Rethrow() {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}
