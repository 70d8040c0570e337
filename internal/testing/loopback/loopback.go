// Package loopback has addresses for tests whose servers need an address before they listen, such as servers in
// programs that a test starts.
//
// A free address may be taken by the time the server begins to listen, and an address that is held back from
// others is held back from the server too. So each process has its own address in 127.0.0.0/8, made of its
// process ID, and gives out each port once. The ports are below those that the kernel gives to clients.
package loopback

import (
	"fmt"
	"os"
	"sync/atomic"
)

const (
	firstPort = 12000
	ports     = 20000
)

var given atomic.Uint32

// Address returns an address, with a port, on which nobody else listens. A process has 20,000 of them.
func Address() string {
	n := given.Add(1)
	if n > ports {
		panic("no port is left")
	}
	return of(os.Getpid(), n)
}

// of returns the address of a process with the n-th port, counted from 1.
func of(pid int, n uint32) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff, firstPort+n-1)
}
