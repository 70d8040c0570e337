package process

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/testing/terminal"
)

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// slow is a program whose verb takes long, and reports that from time to time.
func slow(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{Use: "program"}
	root.AddCommand(&cobra.Command{Use: "verb", RunE: func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		pass(900 * time.Millisecond)
		fmt.Fprintln(cmd.ErrOrStderr(), "a warning")
		pass(900 * time.Millisecond) // less than a second of silence
		Doing(ctx, "reading r%d", 2)
		pass(2200 * time.Millisecond) // until 4 s
		Doing(ctx, "waiting for \x1b[2Jsomething that many people have to agree on\nbefore it is done")
		pass(500 * time.Millisecond)
		fmt.Fprintln(cmd.OutOrStdout(), "a part of the answer")
		Doing(ctx, "")
		pass(5200 * time.Millisecond)
		Doing(ctx, "ending")
		pass(time.Second)
		return nil
	}})
	AddProgress(root, map[string]string{"verb": "opening the store"})
	root.SetArgs([]string{"verb"})
	root.SetOut(out)
	root.SetErr(errs)
	return root
}

// A person who waits at a terminal sees for what, on a line that leaves no trace.
func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "")
	t.Setenv("NO_COLOR", "1") // there are no colours in it
	screen := terminal.Open(t, 40)
	synctest.Test(t, func(t *testing.T) {
		if err := slow(screen.File, screen.File).ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour) // nothing is shown after the end
	})
	if diff := cmp.Diff(strings.Join([]string{
		"a warning\n" + eraseLine + "reading r2 (1s)",
		"reading r2 (2s)", "reading r2 (3s)", `waiting for \x1b[2Jsomething that… (4s)`,
		"a part of the answer\n" + eraseLine + "ending (10s)", "",
	}, eraseLine), screen.Seen(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Scripts and logs do not get the line.
func TestNoProgress(t *testing.T) {
	t.Setenv("COLUMNS", "")
	dumb := terminal.Open(t, 80)
	var out, errs bytes.Buffer
	for _, c := range []struct {
		name      string
		out, errs io.Writer
		got       func() string
		want      string
	}{
		{"a pipe", &out, &errs, func() string { return out.String() + errs.String() }, "a part of the answer\na warning\n"},
		{"a terminal that is dumb", dumb.File, dumb.File, func() string { return dumb.Seen(t) }, "a warning\na part of the answer\n"},
	} {
		t.Setenv("TERM", "dumb")
		synctest.Test(t, func(t *testing.T) {
			if err := slow(c.out, c.errs).ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if got := c.got(); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// A script or a log gets one line of a verb that prints nothing for long, and says no more.
func TestProgressWithoutATerminal(t *testing.T) {
	var out, errs bytes.Buffer
	root := &cobra.Command{Use: "program"}
	root.AddCommand(&cobra.Command{Use: "verb", RunE: func(cmd *cobra.Command, _ []string) error {
		pass(10 * time.Second)
		fmt.Fprintln(cmd.OutOrStdout(), "a part of the answer")
		pass(10 * time.Second)
		seen := Doing(cmd.Context(), "waiting for the server")
		pass(time.Hour)
		fmt.Fprintln(cmd.OutOrStdout(), "seen:", seen)
		return nil
	}})
	AddProgress(root, map[string]string{"verb": "opening the store"})
	root.SetArgs([]string{"verb"})
	root.SetOut(&out)
	root.SetErr(&errs)
	synctest.Test(t, func(t *testing.T) {
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if out.String() != "a part of the answer\nseen: false\n" || errs.String() != "still waiting for the server, after 25s\n" {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
}

// Tables and colours are those of the terminal, also while a line is shown.
func TestProgressKeepsTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "")
	t.Setenv("NO_COLOR", "")
	screen := terminal.Open(t, 77)
	p := newProgress(screen.File, "waiting", false)
	defer p.end()
	if got := StyleOf(On(io.Discard, &aside{screen.File, p}, false)); got != (Style{Width: 77, Colour: true}) {
		t.Errorf("%+v", got)
	}
}
