package kubetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// In the namespace of InNamespace, all of these addresses are this machine's.
const (
	PodRange  = "10.244.0.0/16"
	PodRange6 = "fd00:10:244::/64"
)

// inside is set for the process in the namespace.
const inside = "HAPSNAP_KUBETEST_INSIDE"

// InNamespace starts this program again, with its arguments, in a network namespace of its own, runs the
// function there, and returns its exit code. Code before and after the call runs in both processes.
func InNamespace(run func() int) int {
	if os.Getenv(inside) == "" {
		return again()
	}
	// A program that a test starts may need a namespace too.
	err := errors.Join(os.Unsetenv(inside), raiseNetwork())
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up the network of the tests:", err)
		return 1
	}
	return run()
}

// again runs this program in the namespace. It dies with this process, whose thread forked it.
func again() int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it ends with this process
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = newNamespace(os.Getuid(), os.Getgid())
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "run the tests in a network namespace: %v\n\thint: this needs root, or a kernel that lets users make namespaces\n", err)
		return 1
	}
	return 0
}

// newNamespace asks for a network namespace, and for a user namespace if only root can make the former.
func newNamespace(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	return attr
}

// raiseNetwork brings up lo in a new namespace, and makes the addresses of pods
// local. A kernel without IPv6 has only those of IPv4.
func raiseNetwork() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if err := ask(syscall.RTM_NEWLINK, 0, linkUp(lo.Index)); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	for _, pods := range []string{PodRange, PodRange6} {
		prefix := netip.MustParsePrefix(pods)
		err := ask(syscall.RTM_NEWROUTE, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL, localRoute(lo.Index, prefix))
		if prefix.Addr().Is6() && (errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EACCES)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("route %s to lo: %w", pods, err)
		}
	}
	// With IPv4, a route is enough to listen on an address.
	err = os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// linkUp is the message for `ip link set lo up`, see rtnetlink(7).
func linkUp(index int) []byte {
	return encode(syscall.IfInfomsg{Index: int32(index), Flags: syscall.IFF_UP, Change: syscall.IFF_UP})
}

// localRoute is the message for `ip route add local PREFIX dev lo`.
func localRoute(index int, prefix netip.Prefix) []byte {
	family := uint8(syscall.AF_INET)
	if prefix.Addr().Is6() {
		family = syscall.AF_INET6
	}
	message := encode(syscall.RtMsg{
		Family: family, Dst_len: uint8(prefix.Bits()), Table: syscall.RT_TABLE_LOCAL,
		Protocol: syscall.RTPROT_BOOT, Scope: syscall.RT_SCOPE_HOST, Type: syscall.RTN_LOCAL,
	})
	message = append(message, attribute(syscall.RTA_DST, prefix.Addr().AsSlice())...)
	return append(message, attribute(syscall.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))...)
}

// attribute is one of a message. Those here need no padding.
func attribute(kind uint16, value []byte) []byte {
	return append(encode(syscall.RtAttr{Len: uint16(syscall.SizeofRtAttr + len(value)), Type: kind}), value...)
}

func encode(message any) []byte {
	out, err := binary.Append(nil, binary.NativeEndian, message)
	if err != nil {
		panic(err) // all fields of the kernel's structs have a fixed size
	}
	return out
}

// ask sends a message to the kernel's routing, and waits for its answer.
func ask(kind uint16, flags uint16, message []byte) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	header := encode(syscall.NlMsghdr{
		Len: uint32(syscall.SizeofNlMsghdr + len(message)), Type: kind, Flags: syscall.NLM_F_REQUEST | syscall.NLM_F_ACK | flags,
	})
	if err := syscall.Sendto(fd, append(header, message...), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, os.Getpagesize())
	n, _, err := syscall.Recvfrom(fd, buffer, 0)
	if err != nil {
		return err
	}
	// The error in the kernel's answer is 0 for success.
	answer := buffer[:n]
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return err
	}
	if len(messages) != 1 || messages[0].Header.Type != syscall.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return fmt.Errorf("answer %x of the kernel", answer)
	}
	if code := int32(binary.NativeEndian.Uint32(messages[0].Data)); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// heldThread is a thread of its own. The kernel takes the thread that forked a child for its parent, and sends
// the signal of bin/kube-apiserver when that thread ends.
type heldThread struct{ work chan func() }

func holdThread() *heldThread {
	h := &heldThread{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range h.work {
			f()
		}
	}()
	return h
}

func (h *heldThread) run(f func() error) error {
	done := make(chan error)
	h.work <- func() { done <- f() }
	return <-done
}

// release ends the thread, after its children.
func (h *heldThread) release() { close(h.work) }

// portLock is a port of 127.0.0.1 that no other Server takes, even while nobody listens on it. The lock is the
// name of an abstract socket, which disappears with the process.
type portLock struct {
	port  int
	guard net.Listener
}

// lockPort takes a free port below those that the kernel gives to clients.
func lockPort() (*portLock, error) {
	var last error
	for range 100 {
		port := 10000 + rand.IntN(20000)
		guard, err := new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@hapsnap-kubetest-%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock a port: %w", err)
		}
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", fmt.Sprintf(":%d", port))
		if err == nil {
			return &portLock{port, guard}, listener.Close()
		}
		last = errors.Join(err, guard.Close())
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}

func (l *portLock) release() error { return l.guard.Close() }
