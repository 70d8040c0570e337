package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
)

// outputFlag chooses between text and JSON.
type outputFlag string

func (f *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "text", "text or json")
}

// write writes v as JSON, or as text.
func (f outputFlag) write(w io.Writer, v any, text func(io.Writer) error) error {
	switch f {
	case "text":
		return text(w)
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	return process.Usage("--output=%s: want text or json", string(f))
}

// age returns a duration in its largest unit, as a person would say it.
func age(d time.Duration) string {
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
