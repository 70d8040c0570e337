package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func TestCode(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"success":               {t.Context(), nil, ExitOK},
		"plain error":           {t.Context(), errors.New("disk full"), ExitFailure},
		"usage":                 {t.Context(), Usage("--x: bad"), ExitUsage},
		"wrapped code":          {t.Context(), fmt.Errorf("render: %w", Invalid(errors.New("bad"))), ExitInvalid},
		"interrupted":           {cancelled, fmt.Errorf("publish: %w", context.Canceled), ExitInterrupted},
		"failed while stopping": {cancelled, errors.New("disk full"), ExitFailure},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Code(test.ctx, test.err); got != test.want {
				t.Errorf("Code(%v) = %d, want %d", test.err, got, test.want)
			}
		})
	}
}

func TestMainPrintsErrorAndHintOnce(t *testing.T) {
	var stderr bytes.Buffer
	root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
		return WithHint(Invalid(errors.New("nothing to read")), "name a directory")
	}}
	root.SetArgs(nil)
	root.SetErr(&stderr)
	if code := Main(root); code != ExitInvalid {
		t.Errorf("exit code %d, want %d", code, ExitInvalid)
	}
	if want := "tool: nothing to read\n\thint: name a directory\n"; stderr.String() != want {
		t.Errorf("stderr = %q, want %q", stderr.String(), want)
	}
}

// An error commands no terminal, whoever chose its words.
func TestMainEscapesErrors(t *testing.T) {
	var stderr bytes.Buffer
	root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
		return WithHint(errors.New("the server says: \x1b[2J\n\tmöre"), "a\u202eb")
	}}
	root.SetArgs(nil)
	root.SetErr(&stderr)
	Main(root)
	if want := "tool: the server says: \\x1b[2J\n\tmöre\n\thint: a\\u202eb\n"; stderr.String() != want {
		t.Errorf("stderr = %q, want %q", stderr.String(), want)
	}
}

// A command whose output does not fit on the disk fails, whether or not it looks at each line. A reader that is gone
// is no failure.
func TestMainNoticesLostOutput(t *testing.T) {
	for _, test := range []struct {
		lost, err error
		code      int
		want      string
	}{
		{syscall.ENOSPC, nil, ExitFailure, "tool: no space left on device\n"},
		{syscall.ENOSPC, Invalid(nil), ExitFailure, "tool: no space left on device\n"},
		{syscall.ENOSPC, Usage("other"), ExitUsage, "tool: other\n"},
		{syscall.EPIPE, nil, ExitOK, ""},
	} {
		var stderr bytes.Buffer
		root := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "a line")
			return test.err
		}}
		root.SetArgs(nil)
		root.SetOut(failing{test.lost})
		root.SetErr(&stderr)
		if code := Main(root); code != test.code || stderr.String() != test.want {
			t.Errorf("%v and %v: exit code %d, %q", test.lost, test.err, code, stderr.String())
		}
	}
}

// failing is a file that cannot be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A closed terminal ends a command as SIGTERM does, also in the middle of a computation that looks at no context.
func TestMainEndsWithSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		// Tests that run under nohup would else have SIGHUP ignored.
		wanted := make(chan os.Signal, 1)
		signal.Notify(wanted, s)
		defer signal.Stop(wanted)
		root := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				return err
			}
			_, err := Interruptible(cmd.Context(), func() (int, error) {
				<-t.Context().Done()
				return 1, nil
			})
			return err
		}}
		root.SetArgs(nil)
		if code := Main(root); code != ExitInterrupted {
			t.Errorf("%s: exit code %d, want %d", s, code, ExitInterrupted)
		}
	}
}

func TestMainTreatsUnknownFlagAsUsage(t *testing.T) {
	root := &cobra.Command{Use: "tool", Run: func(*cobra.Command, []string) {}}
	root.SetArgs([]string{"--nonsense"})
	root.SetErr(io.Discard)
	if code := Main(root); code != ExitUsage {
		t.Errorf("exit code %d, want %d", code, ExitUsage)
	}
}

func TestArgsSaysHowTheCommandIsWritten(t *testing.T) {
	for want, args := range map[string][]string{
		"no argument is given; the command is tool pin SNAPSHOT -f DIR":        nil,
		`one argument is given, "r1"; the command is tool pin SNAPSHOT -f DIR`: {"r1"},
		"3 arguments are given; the command is tool pin SNAPSHOT -f DIR":       {"r1", "r2", "r3"},
		"manifests are named with -f, as in -f m; see tool pin --help":         {"m"},
		`see tool pin --help`: {"m", "-f", "other"},
	} {
		root := &cobra.Command{Use: "tool"}
		verb := &cobra.Command{Use: "pin SNAPSHOT -f DIR [flags]", Args: Args(cobra.ExactArgs(2)), Run: func(*cobra.Command, []string) {}}
		verb.Flags().StringP("filename", "f", "", "")
		root.AddCommand(verb)
		root.SetArgs(append([]string{"pin"}, args...))
		root.SetErr(io.Discard)
		root.SetOut(io.Discard)
		err := root.Execute()
		if err == nil || err.Error() != want && Hint(err) != want {
			t.Errorf("%q: %v, %q; want %s", args, err, Hint(err), want)
		}
	}
}

func TestLoggerRefusesUnknownLevelAndFormat(t *testing.T) {
	for _, o := range []LogOptions{{Level: "loud", Format: "text"}, {Level: "info", Format: "xml"}} {
		if _, err := o.Logger(io.Discard); Code(t.Context(), err) != ExitUsage {
			t.Errorf("%+v: error %v, want a usage error", o, err)
		}
	}
}

func TestServer(t *testing.T) {
	ready := errors.New("no snapshot yet")
	registry := NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "hapsnap_test_value"}))
	ctx, cancel := context.WithCancel(t.Context())
	addr, wait, err := Server{
		Address: "127.0.0.1:0", Metrics: registry, Log: slog.New(slog.DiscardHandler),
		Ready: func() error { return ready },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(path string, status int, part string) {
		t.Helper()
		response, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != status || !strings.Contains(string(body), part) {
			t.Errorf("GET %s = %d %q, want %d with %q", path, response.StatusCode, body, status, part)
		}
	}
	expect("/healthz", 200, "ok")
	expect("/readyz", 503, "no snapshot yet")
	expect("/metrics", 200, "hapsnap_test_value 0")
	ready = nil
	expect("/readyz", 200, "ok")
	cancel()
	wait()
	if _, err := http.Get("http://" + addr + "/healthz"); err == nil {
		t.Error("the server still answers after its context ended")
	}
}

// A shell is not blocked if a store does not answer.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		stuck := Bounded(func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			<-asked // and ignores its context
			return []cobra.Completion{"late"}, cobra.ShellCompDirectiveDefault
		})
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		began := time.Now()
		if words, directive := stuck(cmd, nil, ""); words != nil || directive != cobra.ShellCompDirectiveNoFileComp || time.Since(began) != 2*time.Second {
			t.Errorf("%v and %d after %s", words, directive, time.Since(began))
		}
		close(asked)
	})
}

// A command that ends soon collects garbage seldom. One that keeps running collects it as usual, unless GOGC
// says how often.
func TestGarbage(t *testing.T) {
	const own = 50
	defer debug.SetGCPercent(debug.SetGCPercent(own))
	t.Setenv("AUTOMEMLIMIT", "off")
	for _, tt := range []struct {
		name, set string
		runsOn    bool
		want      int
	}{
		{"a command that ends, with GOGC=50", "50", false, own},
		{"a command that ends", "", false, briefGarbage},
		{"one that runs on, with GOGC=50", "50", true, own},
		{"one that runs on", "", true, lastingGarbage},
	} {
		t.Setenv("GOGC", tt.set)
		debug.SetGCPercent(own)
		root := &cobra.Command{Use: "program", Run: func(*cobra.Command, []string) {
			if tt.runsOn {
				Started(slog.New(slog.DiscardHandler), nil)
			}
		}}
		root.SetArgs([]string{})
		if code := Main(root); code != ExitOK {
			t.Fatalf("%s ended with %d", tt.name, code)
		}
		if got := debug.SetGCPercent(own); got != tt.want {
			t.Errorf("%s: garbage of %d %%, want %d", tt.name, got, tt.want)
		}
	}
}
