package process

import (
	"os/exec"
	"strings"
	"testing"
)

func TestShellCommand(t *testing.T) {
	t.Parallel()
	for want, words := range map[string][]string{
		"pusher unpin --store dir:store":                           {"pusher", "unpin", "--store", "dir:store"},
		"unpin --store 'git+https://h/e.git?branch=edge&review=x'": {"unpin", "--store", "git+https://h/e.git?branch=edge&review=x"},
		`echo 'it'\''s off' '' '$(reboot)' '~/x' a=b '=b'`:         {"echo", "it's off", "", "$(reboot)", "~/x", "a=b", "=b"},
	} {
		if got := ShellCommand(words...); got != want {
			t.Errorf("%q is %s, want %s", words, got, want)
		}
	}
	words := []string{"a?b", "it's", "$(false)", "`x`", "*", "two words", "new\nline", `back\slash`, "!", ""}
	out, err := exec.Command("sh", "-c", ShellCommand(append([]string{"printf", `%s\0`}, words...)...)).Output()
	if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
		t.Errorf("a shell reads %q, %v, want %q", out, err, want)
	}
}
