package cli

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
)

// speech has texts of the halves name this program.
type speech struct {
	name string // of this program, as people type it
	own  *regexp.Regexp
}

func newSpeech(root *cobra.Command, name string) speech {
	var verbs []string
	for _, verb := range root.Commands() {
		verbs = append(verbs, regexp.QuoteMeta(verb.Name()))
	}
	return speech{name, regexp.MustCompile(`\b(?:pusher|compiler) (` + strings.Join(verbs, "|") + `)\b`)}
}

// text returns a text in which verbs are those of this program.
func (s speech) text(text string) string { return s.own.ReplaceAllString(text, s.name+" $1") }

// found are the flags that this program finds by itself.
var found = regexp.MustCompile(` \[?--(store|state) [A-Z]+\]?`)

// rename has a verb, and its errors, speak of this program.
func (s speech) rename(verb *cobra.Command) {
	verb.Use = found.ReplaceAllString(verb.Use, "")
	verb.Short, verb.Long = s.text(verb.Short), s.text(verb.Long)
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage = s.text(f.Usage)
		if f.Name == "store" || f.Name == "state" {
			f.Usage = strings.TrimSuffix(f.Usage, " (required)")
		}
	})
	run := verb.RunE
	verb.RunE = func(cmd *cobra.Command, args []string) error { return s.error(run(cmd, args)) }
}

// said is an error in other words.
type said struct {
	error
	text string
}

func (e said) Error() string { return e.text }
func (e said) Unwrap() error { return e.error }

// error returns an error that speaks of this program, and leaves those alone of which
// everything was said.
func (s speech) error(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*process.ExitError](err); ok && e.Err == nil {
		return err
	}
	hint := process.Hint(err)
	if text := err.Error(); text != s.text(text) {
		err = said{err, s.text(text)}
	}
	if hint == "" {
		return err
	}
	return process.WithHint(err, s.text(hint))
}
