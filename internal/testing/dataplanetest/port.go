package dataplanetest

import (
	"fmt"
	"net"
	"syscall"
)

// port is one that stays taken while nobody listens on it: a socket is bound to it
// that does not listen. The kernel gives it to no other process that asks for any
// port, and who connects meanwhile is refused.
type port struct {
	address string
	socket  int
}

// holdPort takes a port of an address of IPv4; 0 is any that is free.
func holdPort(address string) (*port, error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	p := &port{socket: socket}
	if err := p.bind(at); err != nil {
		p.release()
		return nil, fmt.Errorf("hold %s: %w", address, err)
	}
	return p, nil
}

func (p *port) bind(at *net.TCPAddr) error {
	// Who is to listen there sets this too.
	if err := syscall.SetsockoptInt(p.socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	wanted := &syscall.SockaddrInet4{Port: at.Port}
	copy(wanted.Addr[:], at.IP.To4())
	if err := syscall.Bind(p.socket, wanted); err != nil {
		return err
	}
	bound, err := syscall.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.address = (&net.TCPAddr{IP: at.IP, Port: bound.(*syscall.SockaddrInet4).Port}).String()
	return nil
}

func (p *port) release() { _ = syscall.Close(p.socket) }
