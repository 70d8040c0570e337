package configmapstore

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Remember has the store know what a reader saw of it before, as [channel.View.Seen]
// says.
func (s *Store) Remember(seen channel.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.believed = seen.Of(s.String()).Channel
}

// remembered is what Remember is to be given.
func (s *Store) remembered() channel.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return channel.Seen{Store: s.String(), Channel: s.believed}
}

// versionOf tells the states of a ConfigMap apart; "" is that of none. The serial is that of
// what is signed, 0 where no signature is asked for.
func versionOf(o *corev1.ConfigMap, serial uint64) string {
	if o == nil {
		return ""
	}
	version := string(o.UID) + "/" + o.ResourceVersion
	if serial > 0 {
		version += "/" + strconv.FormatUint(serial, 10)
	}
	return version
}

// believe notes the channel's ConfigMap, nil for none, if it comes after the one that was
// believed last, or what it says accepts that it does not.
func (s *Store) believe(o *corev1.ConfigMap, serial uint64, c channel.Channel) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := versionOf(o, serial)
	if why := rewound(s.believed, now); why != "" {
		gone := &channel.RewoundError{Channel: s.believed, Message: why}
		if !c.AcceptsRewind(gone) {
			return gone
		}
		s.log.Info("a person has given up a channel that was seen", "store", s.String(), "version", now, "before", s.believed)
	}
	s.believed = now
	return nil
}

// rewound says why a ConfigMap of a version is none that came after another, "" if it is.
//
// People, and tools such as Argo CD and Flux, may write into it what they like, also what
// was in it before: it stays the same object, and its resourceVersion grows, which
// Kubernetes promises to be comparable (KEP-5504). An object that was deleted and made again
// has another UID, and one that was restored with the whole of etcd a lower version. Where
// it is signed, what was in it before is not to be written by who cannot sign: its number
// does not go down.
func rewound(before, now string) string {
	uid, version, serial := versionParts(now)
	oldUID, oldVersion, oldSerial := versionParts(before)
	switch {
	case before == "" || before == now:
		return ""
	case now == "":
		return fmt.Sprintf("it is gone, and was there at version %s", oldVersion)
	case uid != oldUID:
		return "it was deleted and made again"
	}
	is, err := strconv.ParseUint(version, 10, 64)
	was, oldErr := strconv.ParseUint(oldVersion, 10, 64)
	if err == nil && oldErr == nil && is < was {
		return fmt.Sprintf("it is at version %d, and was at %d", is, was)
	}
	if serial > 0 && serial < oldSerial {
		return fmt.Sprintf("somebody put back the one that was signed as number %d, after number %d was read", serial, oldSerial)
	}
	return ""
}

// versionParts takes a version apart.
func versionParts(text string) (uid, version string, serial uint64) {
	uid, rest, _ := strings.Cut(text, "/")
	version, number, _ := strings.Cut(rest, "/")
	serial, _ = strconv.ParseUint(number, 10, 64) // 0 of one without
	return uid, version, serial
}
