package kubetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
)

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
	return acknowledged(buffer[:n])
}

// acknowledged returns the error in the kernel's answer, which is 0 for success.
func acknowledged(answer []byte) error {
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
