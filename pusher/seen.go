package pusher

import "github.com/hapsnap/hapsnap/snapshots/channel"

// rememberer is a store that finds out when it went back, if it is told what was seen of it.
type rememberer interface {
	Remember(seen channel.Seen)
}

// remember gives a store what was seen of it before a restart, or by the pusher that led
// before. A pusher without a state believes what it finds.
func remember(s Store, seen channel.Seen) {
	if s, ok := s.(rememberer); ok {
		s.Remember(seen)
	}
}

// ReadSeen returns what a pusher has seen of its store, from its state file: it need not
// run. [ErrNoState] is returned for a file that is not there.
func ReadSeen(file string) (channel.Seen, error) {
	data, err := readFile(file)
	if err != nil {
		return channel.Seen{}, err
	}
	return ParseSeen(data, file)
}

// ParseSeen is ReadSeen of a state that was read from a place.
func ParseSeen(data []byte, place string) (channel.Seen, error) {
	s, err := parseState(data, place)
	return s.Seen, err
}
