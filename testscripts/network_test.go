package testscripts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
)

// The hosts of a script's network. Instances and pods count from 1.
const (
	compilerHost = 251
	pusherHost   = 252
	webhookHost  = 253
)

// network is 127.64.B.0/24, with pods in 10.244.B.0/24, as in a cluster. It belongs to one script at a time.
// All of its hosts use the same few ports.
type network struct {
	b     int
	guard net.Listener
	// Port is the port of pods and of the programs' own servers. Partner and Second are two more of the
	// instances.
	Port, HTTP, HTTPS, Status, API, Partner, Second int
}

// newNetwork takes a network that no other script has. The name of an abstract socket is the lock.
func newNetwork() (*network, error) {
	for {
		n := &network{b: rand.IntN(256)}
		guard, err := net.Listen("unix", fmt.Sprintf("@hapsnap-testscripts-%d", n.b))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take a network: %w", err)
		}
		n.guard = guard
		for _, port := range []*int{&n.Port, &n.HTTP, &n.HTTPS, &n.Status, &n.API, &n.Partner, &n.Second} {
			if *port, err = n.freePort(); err != nil {
				return nil, errors.Join(err, guard.Close())
			}
		}
		return n, nil
	}
}

// freePort returns a port that nothing uses on all addresses at once, below those that the kernel gives to clients, and
// different from the network's other ports. It listens on an address of this network alone: on all of them, it would
// be in the way of an instance of another network that is just being restarted on that port.
func (n *network) freePort() (int, error) {
	var last error
	for range 100 {
		port := 10000 + rand.IntN(20000)
		if slices.Contains([]int{n.Port, n.HTTP, n.HTTPS, n.Status, n.API, n.Partner, n.Second}, port) {
			continue
		}
		listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", n.ip(0), port))
		if err == nil {
			return port, listener.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

func (n *network) ip(host int) string { return fmt.Sprintf("127.64.%d.%d", n.b, host) }

func (n *network) podIP(host int) string { return fmt.Sprintf("10.244.%d.%d", n.b, host) }

// address is a host with the common port.
func (n *network) address(host int) string { return fmt.Sprintf("%s:%d", n.ip(host), n.Port) }

func (n *network) close() { n.guard.Close() }
