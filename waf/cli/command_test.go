package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
)

// The socket of a killed agent is replaced, that of a running one is not.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first, err := listen(t.Context(), "unix@"+path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "unix@"+path, 0o660); err == nil || !strings.Contains(err.Error(), "somebody listens") {
		t.Error(err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := listen(t.Context(), "unix@"+path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// Flags that do not fit together are usage errors.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"run --listen 9000":                               `--listen: "9000" is not unix@PATH or HOST:PORT`,
		"run --listen :99999":                             `--listen: ":99999" is not unix@PATH or HOST:PORT`,
		"run --listen unix@":                              "names no socket",
		"run --listen :0 --metrics-address 8080":          `--metrics-address: "8080" is not HOST:PORT`,
		"run --listen :0 --metrics-address http://x:8080": "without http://",
		"run --listen :0 --max-frame-size 1":              "--max-frame-size=1: want 1024 or more",
		"run --listen :0 --parallel -1":                   "--parallel=-1: want 0 or more",
		"run --listen :0 --deadline 0s":                   "--deadline=0s: the duration must be more than zero",
		"run --listen :0 --deadline 400":                  "want a duration such as 30m",
	} {
		cmd := NewCommand()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		err := cmd.ExecuteContext(ctx)
		stop()
		if err == nil || !strings.Contains(err.Error()+process.Hint(err), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	for _, args := range []string{"run", "run --listen foo", "run --listen unix@", "run --listen :0 --metrics-address 8080", "run --listen :0 --deadline 0s", "run --listen :0 --max-policies -1", "run --listen :0 --socket-mode 01000", "run --listen :0 --socket-mode 9", "run --listen :0 --parallel-per-route -1", "run --listen :0 x"} {
		cmd := NewCommand()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		err := cmd.ExecuteContext(ctx)
		stop()
		if e, ok := errors.AsType[*process.ExitError](err); !ok || e.Code != process.ExitUsage {
			t.Errorf("%s: %v", args, err)
		}
	}
}
