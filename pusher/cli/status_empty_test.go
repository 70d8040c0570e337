package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher"
)

// The status says which backends have no server up, why, and since when: the first few by
// name, and of the others how many.
func TestStatusOfEmptyBackends(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	many := pusher.BackendsStatus{All: 900, Empty: 300}
	for n := range 100 { // the status lists no more
		many.List = append(many.List, pusher.EmptyBackend{Backend: fmt.Sprintf("shop_%03d_http", n), Since: now.Add(-time.Hour)})
	}
	for name, test := range map[string]struct {
		backends *pusher.BackendsStatus
		want     string
	}{
		"nothing is known": {nil, ""},
		"all have some":    {&pusher.BackendsStatus{All: 3}, ""},
		"two of three": {&pusher.BackendsStatus{All: 3, Empty: 2, Failing: 1, List: []pusher.EmptyBackend{
			{Backend: "shop_api_http", Since: now.Add(-90 * time.Second)},
			{Backend: "shop_web_http", Since: now.Add(-2 * time.Hour), Instances: []string{"edge-1", "edge-3"}},
		}}, `empty     2 of 3 backends have no server up
          shop_api_http: no endpoints, for 1m
          shop_web_http: failing checks on edge-1 edge-3, for 2h
`},
		"many": {&many, `empty     300 of 900 backends have no server up
          shop_000_http: no endpoints, for 1h
          shop_001_http: no endpoints, for 1h
          shop_002_http: no endpoints, for 1h
          shop_003_http: no endpoints, for 1h
          shop_004_http: no endpoints, for 1h
          and 295 more
`},
	} {
		var out strings.Builder
		if err := printStatus(&out, pusher.Status{Updated: now, Backends: test.backends}, now); err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(out.String(), "good      none yet\n")
		if got, _, _ = strings.Cut(got, "\nINSTANCE"); got != test.want {
			t.Errorf("%s: the status is\n%s\nwant\n%s", name, got, test.want)
		}
	}
}
