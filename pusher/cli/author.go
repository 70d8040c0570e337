package cli

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/config"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// authorForm is how git writes a person.
var authorForm = regexp.MustCompile(`^([^<>\n]*[^<>\s]) <([^<>\s]+)>$`)

// identity returns who a commit is by: the one that was named, else the identity that git has for
// this user, else who acts, as the system calls them.
func (f *whoFlags) identity() (channel.Person, error) {
	if f.author != "" {
		parts := authorForm.FindStringSubmatch(strings.TrimSpace(f.author))
		if parts == nil {
			return channel.Person{}, process.WithHint(process.Usage("--author %q is no person", f.author), "write it as git does: 'Ann Example <ann@example.com>'")
		}
		return channel.Person{Name: parts[1], Email: parts[2]}, nil
	}
	if p := gitIdentity(); p.Name != "" {
		return p, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := cmp.Or(whoami(), "unknown")
	return channel.Person{Name: name, Email: fmt.Sprintf("%s@%s", name, host)}, nil
}

// gitIdentity returns what git has for this user, in its environment or in the user's
// configuration. A configuration that cannot be read has none.
func gitIdentity() channel.Person {
	p := channel.Person{Name: os.Getenv("GIT_AUTHOR_NAME"), Email: os.Getenv("GIT_AUTHOR_EMAIL")}
	if c, err := config.LoadConfig(config.GlobalScope); err == nil {
		p.Name, p.Email = cmp.Or(p.Name, c.Author.Name, c.User.Name), cmp.Or(p.Email, c.Author.Email, c.User.Email)
	}
	if p.Name == "" || p.Email == "" {
		return channel.Person{}
	}
	return p
}
