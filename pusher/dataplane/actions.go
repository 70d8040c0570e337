package dataplane

import (
	"fmt"
	"strconv"
	"strings"
)

// RuntimeAction is a change of a running server that travels with a post, see
// [PostOptions.Actions]. Its text is one entry of the X-Runtime-Actions header.
type RuntimeAction struct {
	name string
	args []string
}

// SetServerAddr gives a server another address, an IP, and port.
func SetServerAddr(backend, server, address string, port int) RuntimeAction {
	return RuntimeAction{"SetServerAddr", []string{backend, server, address, strconv.Itoa(port)}}
}

// SetServerState makes a server ready, drain or maint.
func SetServerState(backend, server, state string) RuntimeAction {
	return RuntimeAction{"SetServerState", []string{backend, server, state}}
}

// SetServerWeight sets the weight of a server, 0 to 256.
func SetServerWeight(backend, server string, weight int) RuntimeAction {
	return RuntimeAction{"SetServerWeight", []string{backend, server, strconv.Itoa(weight)}}
}

// String returns the action as the header has it.
func (a RuntimeAction) String() string { return a.name + " " + strings.Join(a.args, " ") }

// renderActions joins actions into the header's value. The API splits it at every
// semicolon and space and knows no quoting, so neither may be in an argument.
func renderActions(actions []RuntimeAction) (string, error) {
	entries := make([]string, 0, len(actions))
	for _, a := range actions {
		for _, arg := range a.args {
			if arg == "" || strings.ContainsFunc(arg, breaksAction) {
				return "", fmt.Errorf("runtime action %s: argument %q cannot be sent", a.name, arg)
			}
		}
		entries = append(entries, a.String())
	}
	return strings.Join(entries, ";"), nil
}

func breaksAction(r rune) bool { return r <= ' ' || r == ';' || r >= 0x7f }
