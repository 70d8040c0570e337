package bind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Descriptors are the file descriptors that a worker of a configuration reserves when it
// starts: it does not start with fewer. HAProxy reserves one for each server that may be
// checked, be it disabled or not, for a check cannot be added at run time.
type Descriptors struct {
	Checks    int // health checks and agent checks, those of spare slots too
	Listeners int
	MaxConn   int // the global one, 0 if HAProxy computes it
	HardLimit int // fd-hard-limit, 0 if there is none
}

// leastConnections is the maxconn that HAProxy goes down to by itself.
const leastConnections = 100

// Least returns how many descriptors a worker needs at least: two for each connection, and
// what is reserved. HAProxy needs some more for itself.
func (d Descriptors) Least() int {
	return d.Checks + d.Listeners + 2*max(d.MaxConn, leastConnections)
}

// String says what they are for.
func (d Descriptors) String() string {
	return fmt.Sprintf("%d for servers that may be checked, %d for listeners, 2 for each of %d connections",
		d.Checks, d.Listeners, max(d.MaxConn, leastConnections))
}

// CountDescriptors counts what a bound configuration reserves.
func CountDescriptors(config []byte) Descriptors {
	var found Descriptors
	var defaults inheritance[checking]
	for section := range haproxycfg.Sections(config) {
		servers := defaults.of(section) // what default-server says
		for _, line := range section.Lines {
			switch keyword := line.First(); {
			case keyword == "bind":
				found.Listeners += strings.Count(argument(line), ",") + 1
			case keyword == "maxconn" && section.Keyword == "global":
				found.MaxConn = number(argument(line))
			case keyword == "fd-hard-limit" && section.Keyword == "global":
				found.HardLimit = number(argument(line))
			case keyword == "default-server":
				servers = servers.read(line.Texts())
			case keyword == "server" && section.HasServers():
				found.Checks += servers.read(line.Texts()).count()
			case keyword == "server-template" && section.HasServers():
				words := line.Texts()
				found.Checks += number(slices.Concat(words, make([]string, 3))[2]) * servers.read(words).count()
			}
		}
		defaults.end(section, servers)
	}
	return found
}

// number reads a number, 0 for what is none.
func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

// checking says which checks a server has, unless its line says otherwise.
type checking struct{ health, agent bool }

func (c checking) read(words []string) checking {
	for _, word := range words {
		switch word {
		case "check":
			c.health = true
		case "no-check":
			c.health = false
		case "agent-check":
			c.agent = true
		case "no-agent-check":
			c.agent = false
		}
	}
	return c
}

func (c checking) count() (n int) {
	if c.health {
		n++
	}
	if c.agent {
		n++
	}
	return n
}
