package push

import (
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// outgrown says why a worker that runs the snapshot in another shape has to be replaced: by
// what the text on its disk has, "" if that is no other shape of the snapshot. Of several
// backends with other slots it names the first.
func outgrown(disk text, info dataplane.RuntimeInfo, want bind.Bound) string {
	running, shape, err := bind.ParseNode(info.Node)
	wanted, wantedShape, wantErr := bind.ParseNode(want.Node)
	if err != nil || wantErr != nil || running.Short != wanted.Short || shape == wantedShape || disk.node != info.Node {
		return ""
	}
	has, wants := map[string]int{}, map[string]int{}
	for key := range disk.servers {
		has[key.backend]++
	}
	var backends []string
	for _, s := range want.Servers {
		if wants[s.Backend]++; wants[s.Backend] == 1 {
			backends = append(backends, s.Backend)
		}
	}
	more := 0
	for _, b := range backends {
		if wants[b] > has[b] {
			more++
		}
	}
	i := slices.IndexFunc(backends, func(b string) bool { return wants[b] > has[b] })
	if i < 0 {
		return "lines that take a reload changed, such as certificates or weights"
	}
	said := fmt.Sprintf("backend %s needs %d server slots and has %d", backends[i], wants[backends[i]], has[backends[i]])
	switch {
	case more == 2:
		said += ", and so does 1 other"
	case more > 2:
		said += fmt.Sprintf(", and so do %d others", more-1)
	}
	return said
}
