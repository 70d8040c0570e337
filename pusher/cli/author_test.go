package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The author of a commit is who is named, else who git says, else the user.
func TestIdentity(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home, "GIT_AUTHOR_NAME": "", "GIT_AUTHOR_EMAIL": ""} {
		t.Setenv(name, value)
	}
	check := func(author string, want channel.Person) {
		t.Helper()
		if got, err := (&whoFlags{author: author}).identity(); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if p, err := (&whoFlags{}).identity(); err != nil || p.Name != whoami() || !strings.HasPrefix(p.Email, whoami()+"@") {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Ann Example\n\temail = ann@example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("", channel.Person{Name: "Ann Example", Email: "ann@example.com"})
	t.Setenv("GIT_AUTHOR_NAME", "Ann at work")
	check("", channel.Person{Name: "Ann at work", Email: "ann@example.com"})
	check("Bob <bob@example.com>", channel.Person{Name: "Bob", Email: "bob@example.com"})
	for _, author := range []string{"Bob", "<bob@example.com>", "Bob <>", "Bob\nx <bob@example.com>", "Bob <bob@example.com> <x@y>"} {
		if p, err := (&whoFlags{author: author}).identity(); process.Code(t.Context(), err) != process.ExitUsage {
			t.Errorf("%q is %+v, %v", author, p, err)
		}
	}
}
