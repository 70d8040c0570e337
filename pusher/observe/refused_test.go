package observe

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Events name a limited number of refused Services and addresses.
func TestRefusalEventsAreBounded(t *testing.T) {
	t.Parallel()
	refused := Refused{}
	for n := range mostRefusalsSaid + 1 {
		var list []live.Refused
		for i := range 1000 {
			list = append(list, live.Refused{Endpoint: snapshots.Endpoint{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String(), Port: 80}})
		}
		refused[snapshots.ServicePort{Namespace: "bad", Service: fmt.Sprint("s", n)}] = list
	}
	all := refused.Events()
	if len(all) != mostRefusalsSaid || len(all[0].Note) > 1000 || !strings.Contains(all[0].Note, "and 980 more") {
		t.Errorf("%d Events, the first %v", len(all), all[:1])
	}
}
