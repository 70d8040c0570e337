package cli

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/internal/process"
)

// addInput declares -f and --filename.
func addInput(cmd *cobra.Command, to *string, usage string) {
	process.Once(cmd.Flags(), to, "filename", "f", "name one directory that holds both", usage)
}

// addConfig declares --config.
func addConfig(flags *pflag.FlagSet, to *string, usage string) {
	process.Once(flags, to, "config", "", "one file has all of the configuration", usage)
}

// fieldsOfFlags are the fields of the configuration that flags override.
var fieldsOfFlags = map[string]string{
	"ingressClass": "ingress-class", "controllerClass": "controller-class", "watchIngressWithoutClass": "watch-ingress-without-class",
	"gatewayAPI.enabled": "gateway-api", "gatewayAPI.controllerName": "gateway-controller", "endpoints": "endpoints",
	"bind.addresses": "bind-address", "http.port": "http-port", "https.port": "https-port", "status.port": "status-port",
}

// faultOfFlag returns the usage error for a fault of the configuration. It names the flag if the value is that of a flag.
func faultOfFlag(flags *pflag.FlagSet, fault field.Error) error {
	path := fault.Path
	for ; len(path) > 0; path = path[:len(path)-1] {
		if flag := fieldsOfFlags[field.JoinPath(path)]; flag != "" && flags.Changed(flag) {
			return process.WithHint(process.Usage("--%s: %s", flag, fault.Message), fault.Hint)
		}
	}
	return process.WithHint(process.Usage("%w", fault), fault.Hint)
}

// checkAddress returns a usage error for an address that cannot be one, whatever listens there. None is fine.
func checkAddress(flag, address string) error {
	return process.CheckAddress(flag, address, "HOST:PORT", "localhost:8080, or :8080 for all addresses of this host")
}

// checkName returns a usage error for what Kubernetes takes for no name of an object. None is fine.
func checkName(flag, name string) error {
	problems := validation.IsDNS1123Subdomain(name)
	if name == "" || len(problems) == 0 {
		return nil
	}
	return process.WithHint(process.Usage("--%s: %q is not a name", flag, name), problems[0])
}

// checkPorts returns a usage error for ports of listeners that nobody can have together. 0 is no listener.
func checkPorts(http, https int) error {
	const hint = "use 1 to 65535, or 0 for no such listener"
	for name, port := range map[string]int{"http-port": http, "https-port": https} {
		if port < 0 || port > 65535 {
			return process.WithHint(process.Usage("--%s: %d is not a port", name, port), hint)
		}
	}
	switch {
	case cmp.Or(http, https) == 0:
		return process.WithHint(process.Usage("--http-port and --https-port are both 0: nothing would be served"), "give one of them a port")
	case http == https:
		return process.WithHint(process.Usage("--http-port and --https-port are both %d", http), "give each listener a port of its own")
	}
	return nil
}

// outermost leaves out the paths that are named twice, or lie below another one.
func outermost(paths []string) []string {
	var out []string
	for i, path := range paths {
		inside := false
		for j, other := range paths {
			switch below, err := filepath.Rel(other, path); {
			case err != nil || below == ".." || strings.HasPrefix(below, "../"):
			case below == ".":
				inside = inside || j < i
			default:
				inside = true
			}
		}
		if !inside {
			out = append(out, path)
		}
	}
	return out
}
