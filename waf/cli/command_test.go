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
	for _, args := range []string{"run", "run --listen :0 --deadline 0s", "run --listen :0 --max-policies -1", "run --listen :0 --socket-mode 01000", "run --listen :0 --socket-mode 9", "run --listen :0 --parallel-per-route -1", "run --listen :0 x"} {
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
