package podtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/child"
)

// Gateway is the address of the test among those of pods, which have 10.245.0.0/16.
const Gateway = "10.245.0.1"

// network is a bridge to which all pods are connected.
type network struct {
	mu   sync.Mutex
	next int
}

func newNetwork() (*network, error) {
	return &network{}, ip("", "link add pods type bridge\naddr add "+Gateway+"/16 dev pods\nlink set pods up\n")
}

func (n *network) close() { _ = ip("", "link del pods\n") }

// A sandbox is the network of a pod: a process that sleeps in it, the proxy on its loopback address, and its
// ports of the node. The node's own sandbox has only the address.
type sandbox struct {
	address string
	process *process
	api     net.Listener
	ports   []net.Listener
}

// command returns a program that runs in the network. The node's network is that of the test, which the program
// has anyway. The process ID of the test does not lead there: [sandbox.inside] may have moved the test's first
// thread into the network of a pod.
func (s *sandbox) command(ctx context.Context, program string) *exec.Cmd {
	if s.process == nil {
		return exec.CommandContext(ctx, program)
	}
	return exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", s.process.pid()), "--", program)
}

// A nodePort is a port of the node that leads to the endpoints of a Service, in turn.
type nodePort struct {
	listener net.Listener
	mu       sync.Mutex
	targets  []string
	next     int
}

// target returns the address for the next connection, "" for none.
func (n *nodePort) target() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.targets) == 0 {
		return ""
	}
	n.next++
	return n.targets[n.next%len(n.targets)]
}

// publish makes a port of the node lead to addresses.
func (k *Kubelet) publish(port int32, targets []string) error {
	p := k.nodePorts[port]
	if p == nil {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(Gateway, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		p = &nodePort{listener: listener}
		k.nodePorts[port] = p
		go forward(listener, p.target)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
	return nil
}

// sandbox makes a network, whose containers reach the API server on the same port of
// their own loopback address.
func (n *network) sandbox(api string, sysctls map[string]string) (*sandbox, error) {
	n.mu.Lock()
	n.next++
	id := n.next
	n.mu.Unlock()
	s := &sandbox{address: fmt.Sprintf("10.245.%d.%d", 1+id/250, 1+id%250)}
	pause := exec.CommandContext(context.Background(), "/proc/self/exe")
	pause.Env = []string{asShim + "=pause"}
	pause.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var err error
	if s.process, err = startProcess(pause); err != nil {
		return nil, fmt.Errorf("make a network: %w", err)
	}
	pid := s.process.pid()
	err = ip("", fmt.Sprintf("link add pod%d type veth peer name eth0 netns %d\nlink set pod%[1]d master pods up\n", id, pid))
	if err == nil {
		err = ip(fmt.Sprint(pid), fmt.Sprintf("link set lo up\naddr add %s/16 dev eth0\nlink set eth0 up\nroute add default via %s\n", s.address, Gateway))
	}
	if err == nil {
		err = s.inside(func() error {
			for name, value := range sysctls {
				if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o600); err != nil {
					return err
				}
			}
			_, port, err := net.SplitHostPort(api)
			if err != nil {
				return err
			}
			s.api, err = new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", port))
			return err
		})
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("make a network: %w", err)
	}
	go forward(s.api, func() string { return api })
	return s, nil
}

func (s *sandbox) close() {
	for _, listener := range append(s.ports, s.api) {
		if listener != nil {
			_ = listener.Close()
		}
	}
	if s.process == nil {
		return
	}
	s.process.kill(syscall.SIGKILL)
	<-s.process.gone
}

// inside calls a function on a thread in the pod's network. The thread is not used for anything else
// afterwards.
func (s *sandbox) inside(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.process.pid()))
		if err == nil {
			defer file.Close()
			if _, _, errno := syscall.RawSyscall(setns, file.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// forward forwards connections until the listener is closed.
func forward(listener net.Listener, to func() string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			server, err := new(net.Dialer).DialContext(context.Background(), "tcp", to())
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, from) // until either side ends
				_ = server.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, server)
		}()
	}
}

// ip runs commands of ip(8), in the network of a process or in the test's own.
func ip(pid, commands string) error {
	args := []string{"ip", "-batch", "-"}
	if pid != "" {
		args = append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--"}, args...)
	}
	c := exec.CommandContext(context.Background(), args[0], args[1:]...)
	c.Stdin = bytes.NewBufferString(commands)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}

// setns is not in the package syscall for every architecture.
const setns = sysSetns

// A process must not outlive the test.
type process struct {
	command *exec.Cmd
	gone    <-chan struct{}
}

func startProcess(c *exec.Cmd) (*process, error) {
	gone, err := child.Start(c)
	return &process{command: c, gone: gone}, err
}

// code returns the exit code of a process that has ended.
func (p *process) code() int32 { return int32(p.command.ProcessState.ExitCode()) }

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) kill(s syscall.Signal) { _ = p.command.Process.Signal(s) }

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// pause waits for a time, or for the end of a context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// asShim makes the test's own binary set up a container, and then become its program.
const asShim = "HAPSNAP_PODTEST"

// spec is what the shim needs to know.
type spec struct {
	Root     string
	Host     string
	Mounts   []mount
	ReadOnly bool
	Dir      string
	Command  []string
	Env      []string
	UID, GID int
	Groups   []int
}

type mount struct {
	Source, Target string
	ReadOnly       bool
}

// Shim has to come first in TestMain: it takes over in a process that starts a container, and returns in
// others.
func Shim() {
	text := os.Getenv(asShim)
	switch text {
	case "":
		return
	case "pause":
		for { // a select without cases is a deadlock to Go where it has no other thread
			_ = syscall.Pause()
		}
	}
	runtime.LockOSThread()
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.become()
	}
	fmt.Fprintln(os.Stderr, "podtest: start a container:", err)
	os.Exit(127)
}

// become returns only if there is an error.
func (s spec) become() error {
	if err := s.mounts(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(s.Host)); err != nil {
		return fmt.Errorf("set the name of the host: %w", err)
	}
	if err := errors.Join(syscall.Chroot(s.Root), syscall.Chdir(s.Dir)); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	// The command is searched for on the container's own PATH.
	os.Clearenv()
	for _, e := range s.Env {
		if path, ok := cutPath(e); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return err
			}
		}
	}
	path, err := exec.LookPath(s.Command[0])
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(s.Groups), syscall.Setresgid(s.GID, s.GID, s.GID), syscall.Setresuid(s.UID, s.UID, s.UID)); err != nil {
		return fmt.Errorf("become a user: %w", err)
	}
	const (
		setDeathSignal  = 1  // PR_SET_PDEATHSIG, which another user has to set again
		noNewPrivileges = 38 // PR_SET_NO_NEW_PRIVS
	)
	for option, value := range map[uintptr]uintptr{setDeathSignal: uintptr(syscall.SIGKILL), noNewPrivileges: 1} {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
			return fmt.Errorf("prctl: %w", errno)
		}
	}
	syscall.Umask(0o022)
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, s.Command, s.Env)) //nolint:gosec // that is what it is for
}

func cutPath(e string) (string, bool) {
	const name = "PATH="
	if len(e) < len(name) || e[:len(name)] != name {
		return "", false
	}
	return e[len(name):], true
}

// mounts makes the container's file system from its root.
func (s spec) mounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := bind(s.Root, s.Root); err != nil {
		return err
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		target := filepath.Join(s.Root, "dev", device)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, nil, 0o666), bind("/dev/"+device, target)); err != nil { //nolint:gosec // as in a container
			return err
		}
	}
	for _, m := range s.Mounts {
		target := filepath.Join(s.Root, m.Target)
		if err := errors.Join(os.MkdirAll(target, 0o755), bind(m.Source, target)); err != nil { //nolint:gosec // as in a container
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if m.ReadOnly {
			if err := readOnly(target); err != nil {
				return err
			}
		}
	}
	processes := filepath.Join(s.Root, "proc")
	if err := os.MkdirAll(processes, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as in a container
		return err
	}
	if err := syscall.Mount("proc", processes, "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if s.ReadOnly {
		return readOnly(s.Root)
	}
	return nil
}

func bind(source, target string) error {
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

func readOnly(target string) error {
	if err := syscall.Mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}
