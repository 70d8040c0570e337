package cli

import (
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/assert"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
)

// testFlags are the flags of the verb test.
type testFlags struct {
	output       process.OutputFlag
	haproxy, run string
	update       bool
}

func testCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test [DIR|FILE]...",
		Short: "Run tests of configurations and templates",
		Long: `Run every object of kind: CompilerTest in files, or in directories and below. A test names
manifests, templates and a configuration. It asserts that a file or a section of the result
contains lines or equals a text, which Service answers a request, or what the compiler
reports. Requests go to a HAProxy that runs the compiled configuration on sockets of its own.

Without arguments the command looks for tests in the current directory. The exit code is 3
if a test fails or is not valid.`,
		Args: process.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return f.test(cmd, args) },
	}
	f.output.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.haproxy, "haproxy", "haproxy", "name or path of the haproxy that checks and runs configurations, 2.6 or later")
	flags.StringVar(&f.run, "run", "", "run the tests whose name matches this regular expression")
	flags.BoolVar(&f.update, "update", false, "write the files of equalsFile instead of comparing them")
	return cmd
}

func (f *testFlags) test(cmd *cobra.Command, paths []string) error {
	tests, err := f.find(cmd.ErrOrStderr(), paths)
	if err != nil {
		return err
	}
	check, err := validate.Find(cmd.Context(), f.haproxy)
	if err != nil {
		return err
	}
	report := testReport{Tests: []assert.Outcome{}}
	runner := assert.Runner{Check: check, Update: f.update, Now: time.Now()}
	for _, t := range tests {
		o, err := runner.Run(cmd.Context(), t)
		if err != nil {
			return err
		}
		if report.Tests = append(report.Tests, o); o.Passed {
			report.Passed++
		} else {
			report.Failed++
		}
	}
	if err := f.output.Write(cmd.OutOrStdout(), report, report.print); err != nil {
		return err
	}
	if report.Failed > 0 {
		return process.Invalid(nil)
	}
	return nil
}

// find returns the tests to run. It prints what is wrong with any of them.
func (f *testFlags) find(stderr io.Writer, paths []string) ([]assert.Test, error) {
	wanted, err := regexp.Compile(f.run)
	if err != nil {
		return nil, process.Usage("--run: %w", err)
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	tests, found, err := assert.Find(outermost(paths)...)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		printDiagnostics(stderr, found)
		return nil, process.Invalid(nil)
	}
	var named []assert.Test
	for _, t := range tests {
		if wanted.MatchString(t.Name) {
			named = append(named, t)
		}
	}
	if len(named) == 0 {
		return nil, process.Usage("no test has a name that matches %s", f.run)
	}
	return named, nil
}

// testReport is what is printed about tests.
type testReport struct {
	Passed int              `json:"passed"`
	Failed int              `json:"failed"`
	Tests  []assert.Outcome `json:"tests"`
}

func (r testReport) print(w io.Writer) error {
	for _, o := range r.Tests {
		if err := o.Print(w); err != nil {
			return err
		}
	}
	return nil
}
