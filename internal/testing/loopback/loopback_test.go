package loopback

import (
	"net"
	"net/netip"
	"testing"
)

// No two processes and no two calls get the same address, up to the largest process ID of Linux.
func TestAddressesDiffer(t *testing.T) {
	t.Parallel()
	for pid := 1; pid < 1<<22; pid += 97 { // the address contains the process ID, so addresses of two processes differ
		at := netip.MustParseAddrPort(of(pid, 1)).Addr().As4()
		if read := int(at[1]-1)<<16 | int(at[2])<<8 | int(at[3]); read != pid {
			t.Fatalf("of %d one reads %d", pid, read)
		}
	}
	if of(1<<22-1, ports) != "127.64.255.255:31999" {
		t.Errorf("the last is %s", of(1<<22-1, ports))
	}
	a, b := Address(), Address()
	for _, at := range []string{a, b} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
	}
}
