package routingtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// ownAddress returns an address of the loopback for one HAProxy. HAProxy shares a
// port with whoever listens there, so that what two had in common would be
// answered by either.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// given are the ports that freePort has returned.
var given sync.Map

// freePort returns a port of an address that nothing uses, no earlier call has
// returned, and the kernel gives to no client.
func freePort(t *testing.T, ip string) int {
	t.Helper()
	var last error
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint(ip, ":", port))
		if err != nil {
			last = err
			continue
		}
		l.Close()
		return port
	}
	t.Fatalf("no port of %s is free: %v", ip, last)
	return 0
}
