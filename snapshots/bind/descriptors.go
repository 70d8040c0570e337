package bind

import (
	"bytes"
	"fmt"
	"strconv"
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
	c := descriptorCount{defaults: map[string]checking{}}
	for _, line := range numberedLines(config) {
		words := bytes.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if s, opens := openSection(line); opens {
			c.open(s, words)
			continue
		}
		c.line(words)
	}
	c.close()
	return c.found
}

// checking says which checks a server has, unless its line says otherwise.
type checking struct{ health, agent bool }

func (c checking) read(words [][]byte) checking {
	for _, word := range words {
		switch string(word) {
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

// descriptorCount counts section by section.
type descriptorCount struct {
	found    Descriptors
	defaults map[string]checking // by name, the last one without a name under ""
	section  section
	servers  checking // default-server, of the section
}

// open begins a section, with the default-server of the defaults that it is from.
func (c *descriptorCount) open(s section, words [][]byte) {
	c.close()
	from := ""
	for n := 1; n+1 < len(words); n++ {
		if string(words[n]) == "from" {
			from = string(words[n+1])
		}
	}
	c.section, c.servers = s, c.defaults[from]
	if s.keyword == "defaults" && from == "" {
		c.servers = checking{}
	}
}

// close ends a section. The last defaults are those of sections that name none.
func (c *descriptorCount) close() {
	if c.section.keyword == "defaults" {
		c.defaults[c.section.name], c.defaults[""] = c.servers, c.servers
	}
}

func (c *descriptorCount) line(words [][]byte) {
	number := func(n int) int {
		if n >= len(words) {
			return 0
		}
		value, _ := strconv.Atoi(string(words[n]))
		return value
	}
	switch keyword := string(words[0]); {
	case keyword == "bind":
		c.found.Listeners += bytes.Count(words[min(1, len(words)-1)], []byte(",")) + 1
	case keyword == "maxconn" && c.section.keyword == "global":
		c.found.MaxConn = number(1)
	case keyword == "fd-hard-limit" && c.section.keyword == "global":
		c.found.HardLimit = number(1)
	case keyword == "default-server":
		c.servers = c.servers.read(words[1:])
	case keyword == "server" && c.section.hasServers():
		c.found.Checks += c.servers.read(words[1:]).count()
	case keyword == "server-template" && c.section.hasServers():
		c.found.Checks += number(2) * c.servers.read(words[1:]).count()
	}
}
