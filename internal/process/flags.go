package process

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/yamltext"
)

// days are the units that time.ParseDuration lacks.
var days = regexp.MustCompile(`(\d+)([dw])`)

// ParseDuration reads a duration as people write it: as in Go, and with days and weeks, such as 3d or 1w12h. A
// day has 24 hours. It refuses negative durations.
func ParseDuration(text string) (time.Duration, error) {
	inHours := days.ReplaceAllStringFunc(text, func(part string) string {
		n, err := strconv.Atoi(part[:len(part)-1])
		if hours := 24 * n; err == nil && part[len(part)-1] == 'd' && hours/24 == n {
			return strconv.Itoa(hours) + "h"
		} else if hours *= 7; err == nil && hours/7/24 == n {
			return strconv.Itoa(hours) + "h"
		}
		return part // which is no duration
	})
	d, err := time.ParseDuration(inHours)
	switch {
	case err != nil:
		return 0, errors.New("want a duration such as 30m, 2h or 3d")
	case d < 0:
		return 0, errors.New("a duration is never negative, the time would be in the past: want one such as 30m, 2h or 3d")
	}
	return d, nil
}

// durationFlag is a flag that takes what [ParseDuration] reads.
type durationFlag time.Duration

func (f *durationFlag) String() string { return time.Duration(*f).String() }
func (f *durationFlag) Type() string   { return "duration" }

func (f *durationFlag) Set(text string) error {
	d, err := ParseDuration(text)
	*f = durationFlag(d)
	return err
}

// DurationVar declares a flag that takes what [ParseDuration] reads.
func DurationVar(flags *pflag.FlagSet, to *time.Duration, name string, otherwise time.Duration, usage string) {
	*to = otherwise
	flags.Var((*durationFlag)(to), name, usage)
}

// onceFlag is a flag with a path that has no use for a second one. Who gives it twice means both, as with kubectl and Helm, and
// the last one alone would count: everything of the other one would be gone.
type onceFlag struct {
	to      *string
	given   bool
	instead string // what to do where there are two
}

func (f *onceFlag) Type() string { return "string" }

func (f *onceFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

// Set takes a path, and no other one after it.
func (f *onceFlag) Set(path string) error {
	if f.given && path != *f.to {
		return fmt.Errorf("%q is named already: %s", *f.to, f.instead)
	}
	*f.to, f.given = path, true
	return nil
}

// Once declares a flag that takes one path, and refuses another one. A letter is its shorthand, "" for none. Instead says what
// to do where there are two.
func Once(flags *pflag.FlagSet, to *string, name, letter, instead, usage string) {
	flags.VarP(&onceFlag{to: to, instead: instead}, name, letter, usage)
}

// CheckAddress returns a usage error for an address without a port, or with one that nobody can have. None is fine. The form says
// what the flag takes, such as HOST:PORT, and example is such an address.
func CheckAddress(flag, address, form, example string) error {
	_, port, err := net.SplitHostPort(address)
	n, notNumber := strconv.Atoi(port) // a port may have a name
	valid := err == nil && (notNumber != nil || n >= 0 && n <= 65535)
	if address != "" && !valid {
		return WithHint(Usage("--%s: %q is not %s", flag, address, form), "write it with a port and without http://, such as "+example)
	}
	return nil
}

// ParseTime reads a time in the past, as people write it: RFC 3339, a date with or without a time of day, today
// or yesterday with one, a time of day, or how long ago it was. Times are in the time zone of now.
func ParseTime(text string, now time.Time) (time.Time, error) {
	at, ok := parseTime(strings.TrimSpace(text), now)
	switch {
	case !ok:
		return time.Time{}, errors.New("want a time such as 'yesterday 14:03', 14:03, '2h ago', 2026-01-31, '2026-01-31 14:03' or 2026-01-31T14:03:00Z")
	case at.After(now):
		return time.Time{}, errors.New(text + " is not over yet")
	}
	return at, nil
}

func parseTime(text string, now time.Time) (time.Time, bool) {
	if ago, err := ParseDuration(strings.TrimSuffix(strings.TrimSuffix(text, " ago"), "ago")); err == nil {
		return now.Add(-ago), true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	for _, layout := range []string{"2006-01-02", "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, true
		}
	}
	day, clock, _ := strings.Cut(text, " ")
	back := map[string]int{"today": 0, "yesterday": 1}
	days, named := back[day]
	if !named {
		clock = text
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if at, err := time.Parse(layout, clock); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day()-days, at.Hour(), at.Minute(), at.Second(), 0, now.Location()), true
		}
	}
	if named && clock == "" {
		return time.Date(now.Year(), now.Month(), now.Day()-days, 0, 0, 0, 0, now.Location()), true
	}
	return time.Time{}, false
}

// OutputFlag chooses how data is printed. The zero value is text, which is for people.
type OutputFlag struct {
	form string // "" is text
	list bool   // the data has names, and columns for -o wide
	more []string
}

// namer is data that can list names.
type namer interface{ Names() []string }

// AddTo declares -o and --output.
func (f *OutputFlag) AddTo(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "how to print it: "+alternatives(f.forms()))
	var completions []cobra.Completion
	for _, form := range f.forms() {
		word := form
		if text := formTexts[form]; text != "" {
			word = cobra.CompletionWithDesc(form, text)
		}
		completions = append(completions, word)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder))
}

// AddWithTo declares them for data with more forms, in which the text is printed.
func (f *OutputFlag) AddWithTo(cmd *cobra.Command, more ...string) {
	f.more = more
	f.AddTo(cmd)
}

// Is reports whether the user chose a form.
func (f *OutputFlag) Is(form string) bool { return f.String() == form }

// AddListTo declares them for data that has names and is printed as a table.
func (f *OutputFlag) AddListTo(cmd *cobra.Command) {
	f.list = true
	f.AddTo(cmd)
}

func (f *OutputFlag) forms() []string {
	if f.list {
		return []string{"text", "wide", "name", "json", "yaml"}
	}
	return append([]string{"text", "json", "yaml"}, f.more...)
}

// formTexts say what each form is for.
var formTexts = map[string]string{
	"text": "for people", "wide": "for people, with all columns", "name": "names alone", "json": "for programs", "yaml": "for programs", "markdown": "for pull requests",
}

// alternatives joins words with commas and "or".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// String returns the form, such as "text" or "json".
func (f *OutputFlag) String() string { return cmp.Or(f.form, "text") }

// Set reads what [OutputFlag.String] returns.
func (f *OutputFlag) Set(text string) error {
	if !slices.Contains(f.forms(), text) {
		return errors.New("want " + alternatives(f.forms()))
	}
	f.form = text
	return nil
}

// Type is the word for the value in help texts.
func (f *OutputFlag) Type() string { return "form" }

// Structured reports whether the output is for programs instead of people.
func (f *OutputFlag) Structured() bool { return f.form == "json" || f.form == "yaml" }

// Wide reports whether everything is shown, however long it is.
func (f *OutputFlag) Wide() bool { return f.form == "wide" }

// Write writes v as JSON or YAML, or its names, or as text.
func (f *OutputFlag) Write(w io.Writer, v any, text func(io.Writer) error) error {
	switch f.form {
	case "json":
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(v); err != nil {
			return err
		}
		_, err := w.Write(printable.JSON(out.Bytes()))
		return err
	case "yaml":
		data, err := yamltext.Printable(v)
		if err != nil {
			return fmt.Errorf("print YAML: %w", err)
		}
		_, err = w.Write(data)
		return err
	case "name":
		if n, ok := v.(namer); ok {
			for _, name := range n.Names() {
				fmt.Fprintln(w, name)
			}
			return nil
		}
	}
	return text(On(w, w, f.Wide()))
}

// Age returns a duration in its largest unit, as a person would say it.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Coloured reports whether text that is printed to w may have colours: w must be a terminal, and NO_COLOR unset
// or empty (https://no-color.org).
func Coloured(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && Terminal(w) }

// Terminal reports whether w is a terminal that can move its cursor.
func Terminal(w io.Writer) bool {
	f := fileOf(w)
	return f != nil && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// LogOptions are the flags of a program's log.
type LogOptions struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// AddFlags declares --log-level and --log-format.
func (o *LogOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Level, "log-level", "info", "least severe messages to log: debug, info, warn or error")
	flags.StringVar(&o.Format, "log-format", "text", "format of the log: text or json")
}

// Logger returns a logger that writes to w, or a usage error.
func (o LogOptions) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, Usage("--log-level=%s: want debug, info, warn or error", o.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, Usage("--log-format=%s: want text or json", o.Format)
}
