package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// process is a HAProxy.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer // to be read once it has ended
	ended  chan struct{}
}

// run starts HAProxy in a directory. It dies with this process: its thread is
// kept until then, for the kernel ties the signal of death to that.
func run(ctx context.Context, haproxy, dir string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, haproxy, "-db", "-f", snapshots.ConfigFile), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // it is killed
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", haproxy, err)
	}
	return p, nil
}

// kill ends the process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// errEnded means that HAProxy ended by itself.
var errEnded = errors.New("haproxy ended")

// listens waits until there is a listener on each socket.
func (p *process) listens(ctx context.Context, paths []string) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for _, path := range paths {
		for {
			c, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-p.ended:
				return fmt.Errorf("%w: %s", errEnded, bytes.TrimSpace(p.output.Bytes()))
			case <-ctx.Done():
				return fmt.Errorf("wait for haproxy: %w", context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}
