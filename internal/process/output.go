package process

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"
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
