package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Before version 3.4, the API changes addresses only when the whole configuration is
// posted. That takes longer the larger the configuration is. With such an API, a new
// endpoint is served at once by a dynamic server: HAProxy adds that server to the backend
// at run time. The next post gives the slot its address, and the dynamic server is deleted.
// If an endpoint goes, its slot is always drained by a call of its own.

// dynamicPrefix begins the names of dynamic servers, and of no other servers. Slots are
// named s1, s2 and so on.
const dynamicPrefix = "hapsnap-"

// isDynamic reports, by its name, whether a server of a worker is a dynamic server of this
// package.
func isDynamic(server string) bool { return strings.HasPrefix(server, dynamicPrefix) }

// Dynamic is a server that was added to a backend of the worker.
type Dynamic struct {
	Backend, Name string
	Address       string
	Port          int
	State         bind.SlotState
}

// dynamicFor returns the dynamic server that serves what a slot will hold. The name
// contains the address, so adding the server twice has the same effect as adding it once.
func dynamicFor(s bind.Server) Dynamic {
	return Dynamic{
		Backend: s.Backend, Name: fmt.Sprintf("%s%s-%s-%d", dynamicPrefix, s.Name, s.Address, s.Port),
		Address: s.Address, Port: s.Port, State: bind.SlotReady,
	}
}

func (d Dynamic) same(o Dynamic) bool { return d.Backend == o.Backend && d.Name == o.Name }

// dynamicOf returns the dynamic servers in a backend of the worker.
func dynamicOf(backend string, list []dataplane.Server) []Dynamic {
	var out []Dynamic
	for _, s := range list {
		if isDynamic(s.Name) {
			out = append(out, Dynamic{backend, s.Name, s.Address, s.Port, bind.SlotState(s.AdminState)})
		}
	}
	return out
}

// DynamicServers returns the settings of dynamic servers by backend. It leaves out backends
// that can have none.
func DynamicServers(config []byte, directives []bind.Directive) map[string]dataplane.DynamicServer {
	out := map[string]dataplane.DynamicServer{}
	for backend, words := range bind.DynamicBackends(config, directives) {
		if s, ok := dynamicSettings(words); ok {
			out[backend] = s
		}
	}
	return out
}

// dynamicSettings reads the settings of a server line in the form in which the API takes
// them for a dynamic server. It returns false if a setting cannot be expressed exactly. It
// leaves out the settings of health checks, since a dynamic server has none.
func dynamicSettings(words []string) (s dataplane.DynamicServer, ok bool) {
	for len(words) > 0 {
		word, rest := words[0], words[1:]
		value := ""
		if slices.Contains(settingsWithValue, word) {
			if len(rest) == 0 || !isPlain(rest[0]) {
				return s, false
			}
			value, rest = rest[0], rest[1:]
		}
		if !set(&s, word, value) {
			return s, false
		}
		words = rest
	}
	return s, true
}

var settingsWithValue = []string{
	"inter", "fastinter", "downinter", "rise", "fall", "port", "addr", "check-sni", "check-alpn", "check-proto",
	"pool-purge-delay", "pool-low-conn", "pool-max-conn",
	"weight", "maxconn", "minconn", "maxqueue", "alpn", "verify", "verifyhost", "ca-file", "sni", "proto",
}

// set reads one setting.
func set(s *dataplane.DynamicServer, word, value string) bool {
	number := func(into *int) bool {
		var err error
		*into, err = strconv.Atoi(value)
		return err == nil
	}
	switch word {
	case "check", "no-check", "check-ssl", "no-check-ssl", "check-send-proxy", "inter", "fastinter", "downinter", "rise", "fall", "port", "addr",
		"check-sni", "check-alpn", "check-proto", "pool-purge-delay", "pool-low-conn", "pool-max-conn":
	case "weight":
		s.Weight = new(int)
		return number(s.Weight)
	case "maxconn":
		return number(&s.Maxconn)
	case "minconn":
		return number(&s.Minconn)
	case "maxqueue":
		return number(&s.Maxqueue)
	case "ssl":
		s.SSL = "enabled"
	case "alpn":
		s.ALPN = value
	case "verify":
		s.Verify = value
	case "verifyhost":
		s.VerifyHost = value
	case "ca-file":
		s.CAFile = value
		return strings.HasPrefix(value, "@") // names of files change when they are bound
	case "sni":
		s.SNI = value
	case "proto":
		s.Proto = value
	case "send-proxy":
		s.SendProxy = "enabled"
	case "send-proxy-v2":
		s.SendProxyV2 = "enabled"
	default:
		return false
	}
	return true
}

// isPlain reports whether a word means the same in haproxy.cfg and on HAProxy's socket.
func isPlain(word string) bool {
	return !strings.Contains(word, bind.SecretMark) && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"'\$#;<%{}`, r)
	})
}

// dynamicSteps make a worker serve the wanted servers without new addresses for its slots.
type dynamicSteps struct {
	adds   []Dynamic // to be added and made ready
	states []change  // of slots, without their addresses
	drains []Dynamic
}

func (s dynamicSteps) none() bool { return len(s.adds)+len(s.states)+len(s.drains) == 0 }

// stepsToServe returns the steps from the worker's servers to the wanted ones. It returns
// false if only a post can do that, because a weight changes or a backend can have no
// dynamic servers.
func stepsToServe(slots, want []bind.Server, have []Dynamic, addable func(backend string) bool) (steps dynamicSteps, ok bool) {
	var needed []Dynamic
	for _, c := range changes(slots, want) {
		stops := c.from
		stops.State = bind.SlotDrain
		switch {
		case c.gone():
			continue // only a reload makes it again
		case c.from.Weight != c.to.Weight:
			return dynamicSteps{}, false
		case !c.moves():
			steps.states = append(steps.states, c)
			continue
		case c.from.State == bind.SlotReady:
			steps.states = append(steps.states, change{c.from, stops, c.at})
		}
		if c.to.State != bind.SlotReady {
			continue // the next post frees the slot
		}
		d := dynamicFor(c.to)
		needed = append(needed, d)
		if slices.Contains(have, d) {
			continue
		}
		if !addable(c.to.Backend) {
			return dynamicSteps{}, false
		}
		steps.adds = append(steps.adds, d)
	}
	for _, d := range have {
		if d.State == bind.SlotReady && !slices.Contains(needed, d) {
			steps.drains = append(steps.drains, d)
		}
	}
	return steps, true
}

// Serves reports whether the worker is known to serve what is wanted. Either it has the
// wanted servers, or dynamic servers and drained slots have the same effect until the next
// post.
func (r Running) Serves(want []bind.Server) bool {
	if !r.Deferred || len(r.Servers) != len(want) {
		return r.Has(want)
	}
	wanted, _ := keepDrained(want, r.ManualDrains)
	steps, ok := stepsToServe(r.Servers, wanted, r.Dynamic, func(string) bool { return true })
	return ok && steps.none()
}

// Leftovers returns the dynamic servers that the worker no longer needs.
func (r Running) Leftovers() []Dynamic {
	return slices.DeleteFunc(slices.Clone(r.Dynamic), func(d Dynamic) bool {
		return r.Deferred && d.State == bind.SlotReady
	})
}

// setDynamic uses dynamic servers to make the worker serve what is wanted. It returns false
// if that needs a post.
func (i runtime) setDynamic(ctx context.Context, want Wanted, have Running) (Running, bool, error) {
	wanted, _ := keepDrained(want.Servers, have.ManualDrains)
	steps, ok := stepsToServe(have.Servers, wanted, have.Dynamic, func(backend string) bool {
		_, ok := want.Dynamic[backend]
		return ok
	})
	if !ok || len(steps.adds) >= manyChanges {
		return have, false, nil
	}
	have.Persisted, have.Deferred = false, true
	for _, d := range steps.adds {
		var err error
		if have, err = i.addDynamic(ctx, want.Dynamic[d.Backend], d, have); err != nil {
			return have, false, nil //nolint:nilerr // HAProxy does not take it: the post has to do
		}
	}
	done, err := i.setAll(ctx, steps.states)
	if err != nil {
		return have.withUnanswered(steps.states, err), true, err
	}
	known := have.Servers
	have.Servers = slices.Clone(known)
	for _, c := range steps.states {
		found := read(known[c.at], done.told[serverKey{c.to.Backend, c.to.Name}])
		if found.State != c.to.State && !mayDrain(found, c.to) {
			return have, true, change{from: found, to: c.to}.undone()
		}
		have.Servers[c.at] = c.to
	}
	for _, d := range steps.drains {
		_, err := i.API.SetServer(ctx, d.Backend, d.Name, dataplane.ServerChange{AdminState: dataplane.StateDrain})
		if err != nil && !errors.Is(err, dataplane.ErrNotFound) {
			return have, true, err
		}
		d.State = bind.SlotDrain
		have = have.withDynamic(d)
	}
	left, _ := splitGone(changes(have.Servers, wanted))
	have.Deferred = len(left) > 0
	return have, true, nil
}

// mayDrain reports whether a server that should drain may be draining, see [read].
func mayDrain(found, want bind.Server) bool {
	return want.State == bind.SlotDrain && found.State == bind.SlotSpare
}

// addDynamic adds a server, makes it ready, and reads both back from the worker.
func (i runtime) addDynamic(ctx context.Context, settings dataplane.DynamicServer, d Dynamic, have Running) (Running, error) {
	settings.Name, settings.Address, settings.Port = d.Name, d.Address, d.Port
	if strings.Contains(d.Address, ":") {
		settings.Address = "[" + d.Address + "]"
	}
	err := i.API.AddServer(ctx, d.Backend, settings)
	var found dataplane.Server
	if err == nil || errors.Is(err, dataplane.ErrConflict) {
		found, err = i.API.SetServer(ctx, d.Backend, d.Name, dataplane.ServerChange{AdminState: dataplane.StateReady})
	}
	if err == nil && (found.Address != d.Address || found.Port != d.Port || found.AdminState != dataplane.StateReady) {
		err = fmt.Errorf("server %s/%s is %s at %s:%d", d.Backend, d.Name, found.AdminState, found.Address, found.Port)
	}
	if err != nil {
		d.State = bind.SlotSpare // the server may exist, and then has to be deleted
	}
	return have.withDynamic(d), err
}

// withDynamic returns what is known about the worker, with a new state of a dynamic server.
func (r Running) withDynamic(d Dynamic) Running {
	r.Dynamic = append(slices.DeleteFunc(slices.Clone(r.Dynamic), d.same), d)
	return r
}
