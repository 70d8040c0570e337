package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestErrorsAreRedacted(t *testing.T) {
	t.Parallel()
	secret := bind.SecretKey{Secret: snapshots.SecretName{Namespace: "shop", Name: "keys"}, Key: "token"}
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend b\n x hapsnap:secret/shop/keys/token\n")}}}.Number(1, snapshots.ID{})
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{Values: map[bind.SecretKey]string{secret: "s3cret"}}, Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cause := fmt.Errorf("unknown keyword 's3cret': %w", context.DeadlineExceeded)
	if got := withoutSecrets(cause, bound); got.Error() != "unknown keyword '(hidden)': context deadline exceeded" || !errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("got %v", got)
	}
	if withoutSecrets(nil, bound) != nil {
		t.Error("no error becomes one")
	}
}

// bindText binds a configuration with the secret "s3cret".
func bindText(t *testing.T, revision uint64, config string) bind.Bound {
	t.Helper()
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Number(revision, snapshots.ID{})
	secret := bind.SecretKey{Secret: snapshots.SecretName{Namespace: "shop", Name: "keys"}, Key: "token"}
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{Values: map[bind.SecretKey]string{secret: "s3cret"}}, Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	const (
		plain  = "backend b\n    mode http\n"
		secret = plain + "    x hapsnap:secret/shop/keys/token\n"
	)
	long := plain + "    acl " + strings.Repeat("a", 2*longestChange) + "\n"
	for name, c := range map[string]struct {
		from, to string // "" means not known
		reloaded bool
		want     string
	}{
		"nobody knows what ran":         {to: plain, reloaded: true, want: "reload: what ran before is not known"},
		"a line came":                   {from: plain, to: secret, reloaded: true, want: "reload: haproxy.cfg:3: +x (hidden)"},
		"a line went":                   {from: secret, to: plain, reloaded: true, want: "reload: haproxy.cfg:3: -x (hidden)"},
		"a section came":                {from: plain, to: plain + "\n\nbackend c\n", reloaded: true, want: `reload: haproxy.cfg:5: +backend c`},
		"a section went":                {from: secret + "\nbackend c\n", to: secret, reloaded: true, want: `reload: haproxy.cfg:5: -backend c`},
		"an empty line came":            {from: plain, to: plain + "\n", reloaded: true, want: `reload: haproxy.cfg:3: +`},
		"it was refused":                {from: plain, to: secret, want: "reload: haproxy.cfg:3: +x (hidden)"},
		"nothing":                       {from: plain, to: plain, want: "nothing"},
		"it was reloaded for no reason": {from: plain, to: plain, reloaded: true, want: "reload"},
		"a long line":                   {from: plain, to: long, reloaded: true, want: "reload: haproxy.cfg:3: +acl " + strings.Repeat("a", longestChange-len("acl ")) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var running *bind.Bound
			if c.from != "" {
				bound := bindText(t, 1, c.from)
				running = &bound
			}
			got := changeOf(running, bindText(t, 2, c.to), c.reloaded)
			if got.String() != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}
