package cli

import (
	"net/netip"
	"os"
	"slices"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// refusals reads which addresses EndpointSlices of a cluster may not name.
func (f *runFlags) refusals() (err error) {
	var refuse []netip.Prefix
	for _, word := range f.refuse {
		switch {
		case word == "none" && len(f.refuse) == 1:
		case word == "default":
			refuse = append(refuse, defaultRefused(os.Getenv("KUBERNETES_SERVICE_HOST"))...)
		default:
			network, err := parseNetwork("--refuse-endpoints", word)
			if err != nil {
				return err
			}
			refuse = append(refuse, network)
		}
	}
	f.options.RefuseEndpoints = refuse
	for _, word := range f.allow {
		network, err := parseNetwork("--allow-endpoints", word)
		if err != nil {
			return err
		}
		f.options.AllowEndpoints = append(f.options.AllowEndpoints, network)
	}
	return nil
}

// defaultRefused are the usual networks, and the address of the API server's Service, which
// a pod is told.
func defaultRefused(service string) []netip.Prefix {
	out := slices.Clone(live.DefaultRefused)
	if ip, err := netip.ParseAddr(service); err == nil {
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out
}

// parseNetwork reads a network or an address.
func parseNetwork(flag, word string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	network, err := netip.ParsePrefix(word)
	if err != nil || network != network.Masked() {
		return netip.Prefix{}, process.WithHint(process.Usage("%s: %q is no network", flag, word), "write it as 10.0.0.0/8 or 10.0.0.1, and default for the usual ones")
	}
	return network, nil
}
