package pusher

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// listener is an address and a port that HAProxy listens at. The zero address is all addresses.
type listener struct {
	address netip.Addr
	port    uint16
}

// mostListeners bounds how many listeners of a configuration count.
const mostListeners = 256

// listenersOf returns where a configuration has HAProxy listen, each once, as far as it says so
// without variables.
func listenersOf(config []byte) []listener {
	var out []listener
	for line := range haproxycfg.Lines(config) {
		if haproxycfg.FirstWord(line.Text) != "bind" || len(out) >= mostListeners {
			continue
		}
		words := line.Texts()
		if len(words) < 2 {
			continue
		}
		for _, at := range strings.Split(words[1], ",") {
			if l, ok := parseListener(at); ok && !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// parseListener reads an address of the keyword bind, such as ":80", "*:80", "10.0.0.1:80",
// "ipv6@[::]:80" or "quic4@:443".
func parseListener(text string) (listener, bool) {
	if _, rest, ok := strings.Cut(text, "@"); ok {
		text = rest
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return listener{}, false
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil || port == 0 {
		return listener{}, false
	}
	host := strings.Trim(text[:i], "[]")
	if host == "" || host == "*" {
		return listener{port: uint16(port)}, true
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return listener{}, false
	}
	if address.IsUnspecified() {
		address = netip.Addr{}
	}
	return listener{address.Unmap(), uint16(port)}, true
}
