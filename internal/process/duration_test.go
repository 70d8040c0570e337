package process

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"3d": 72 * time.Hour, "1w": 168 * time.Hour, "1w2d3h4m": (7*24+2*24+3)*time.Hour + 4*time.Minute,
		"90m": 90 * time.Minute, "0": 0, "1.5h": 90 * time.Minute,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a duration", "3": "want a duration", "tomorrow": "want a duration", "3 d": "want a duration", "99999999999999999999d": "want a duration",
		"9223372036854775807w": "want a duration", "-2h": "in the past", "-3d": "in the past",
	} {
		if got, err := ParseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %s, %v; want %q", text, got, err, want)
		}
	}
}

func TestDurationVar(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	var d time.Duration
	DurationVar(flags, &d, "for", time.Hour, "how long")
	if d != time.Hour || flags.Lookup("for").DefValue != "1h0m0s" {
		t.Errorf("by default %s, shown as %s", d, flags.Lookup("for").DefValue)
	}
	if err := flags.Parse([]string{"--for", "2d"}); err != nil || d != 48*time.Hour {
		t.Errorf("--for 2d is %s, %v", d, err)
	}
}
