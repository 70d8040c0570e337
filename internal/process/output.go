package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// OutputFlag chooses between text, which it is when zero, and JSON.
type OutputFlag struct {
	json bool
}

// AddTo declares -o and --output.
func (f *OutputFlag) AddTo(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// String returns "text" or "json".
func (f *OutputFlag) String() string {
	if f.json {
		return "json"
	}
	return "text"
}

// Set reads what [OutputFlag.String] returns.
func (f *OutputFlag) Set(text string) error {
	f.json = text == "json"
	if text != "text" && text != "json" {
		return errors.New("want text or json")
	}
	return nil
}

// Type is the word for the value in help texts.
func (f *OutputFlag) Type() string { return "form" }

// Structured reports whether programs read the output, in place of people.
func (f *OutputFlag) Structured() bool { return f.json }

// Write writes v as JSON, or as text.
func (f *OutputFlag) Write(w io.Writer, v any, text func(io.Writer) error) error {
	if !f.json {
		return text(w)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
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

// Coloured reports whether text that is printed to w may have colours: if w is a terminal, and NO_COLOR
// is unset or empty (https://no-color.org).
func Coloured(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && Terminal(w) }

// Terminal reports whether what is printed to w is shown by a terminal that can move
// its cursor.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
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
