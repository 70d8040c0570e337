package routingtest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listeners returns the addresses of a configuration at which HAProxy listens for TCP.
func listeners(tb testing.TB, file string) []netip.AddrPort {
	tb.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var out []netip.AddrPort
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "bind" {
			continue
		}
		if strings.Contains(words[1], "@") {
			continue // a socket of another kind
		}
		// HAProxy takes an IPv6 address without brackets too.
		colon := strings.LastIndexByte(words[1], ':')
		host, port := words[1][:max(colon, 0)], words[1][colon+1:]
		ip, err := netip.ParseAddr(strings.Trim(strings.ReplaceAll(host, "*", "0.0.0.0"), "[]"))
		number, err2 := strconv.ParseUint(port, 10, 16)
		if err := errors.Join(err, err2); err != nil {
			tb.Fatalf("%s: %s: %v", file, line, err)
		}
		out = append(out, netip.AddrPortFrom(ip, uint16(number)))
	}
	if len(out) == 0 {
		tb.Fatalf("%s has no listener", file)
	}
	return out
}

// listening returns the addresses at which a program of this machine listens for TCP. It is the kernel that
// says so: a connection to find that out would be one more that HAProxy logs and counts.
func listening(tb testing.TB) map[netip.AddrPort]bool {
	tb.Helper()
	out := map[netip.AddrPort]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // without IPv6
		}
		if err != nil {
			tb.Fatal(err)
		}
		const addressField, stateField, stateListen = 1, 3, "0A"
		for line := range strings.Lines(string(content)) {
			if f := strings.Fields(line); len(f) > stateField && f[stateField] == stateListen {
				out[kernelAddress(tb, f[addressField])] = true
			}
		}
	}
	return out
}

// kernelAddress reads an address as the kernel writes it: words of four bytes in the order of the processor, a
// colon, and the port.
func kernelAddress(tb testing.TB, text string) netip.AddrPort {
	tb.Helper()
	host, port, _ := strings.Cut(text, ":")
	bytes, err := hex.DecodeString(host)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err := errors.Join(err, err2); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	for word := range slices.Chunk(bytes, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	ip, ok := netip.AddrFromSlice(bytes)
	if !ok {
		tb.Fatalf("%s is no address", text)
	}
	return netip.AddrPortFrom(ip, uint16(number))
}
