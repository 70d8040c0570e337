package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// Four cookies of 7 KB, and 32 KiB of headers of any shape, reach the endpoint; what
// is larger than a buffer is refused, and harms nobody else.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	cookies := make([]string, 4)
	for i := range cookies {
		cookies[i] = fmt.Sprintf("c%d=%s", i, strings.Repeat("x", 7000))
	}
	parts := func(total, each int) (out []field) {
		for i := 0; total > 0; i++ {
			name := fmt.Sprintf("X-Part-%d", i)
			value := strings.Repeat("y", max(1, min(each, total)-len(name)-4))
			out = append(out, field{name, value})
			total -= len(name) + 4 + len(value)
		}
		return out
	}
	split := make([]field, 4)
	for i, cookie := range cookies {
		split[i] = field{"Cookie", cookie}
	}
	yaml := serviceYAML("shop", "a", bare(t)) + ingress{rules: []string{"shop.example P / a"}}.yaml()
	e := start(t, yaml)
	clean(t, e)
	small := startWith(t, yaml, func(c *config.Config) { c.BufferSize = "16k" })
	for _, c := range []struct {
		name   string
		fields []field
		passes bool
	}{
		{"four cookies", []field{{"Cookie", strings.Join(cookies, "; ")}}, true},
		{"four lines", split, true},
		{"32 KiB in one", parts(32<<10-200, 32<<10), true},
		{"32 KiB in many", parts(32<<10-200, 350), true},
		{"64 KiB", parts(64<<10, 8<<10), false},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			for isSmall, edge := range map[bool]edge{false: e, true: small} {
				var status, head string
				var err error
				conn := dial(t, "127.0.0.1", edge.https, protocol)
				if protocol == "h2" {
					h2, failed := newClient2(conn)
					if failed != nil {
						t.Fatal(failed)
					}
					status, head, err = h2.send("shop.example", c.fields)
				} else {
					status, head, err = send11(conn, "shop.example", c.fields)
				}
				complete := status == "200" && err == nil
				for _, f := range c.fields {
					complete = complete && strings.Contains(head, f.value)
				}
				if passes := c.passes && !isSmall; complete != passes {
					t.Errorf("%s over %s, small %v: %s, %d bytes, %v", c.name, protocol, isSmall, status, len(head), err)
				}
				// HAProxy 3.2.0 answers 414 to any header that does not fit.
				if !complete && err == nil && status != "400" && status != "431" && status != "414" {
					t.Errorf("%s over %s, small %v: refused with %s, %v", c.name, protocol, isSmall, status, err)
				}
			}
		}
	}
	if status, _, err := send11(dial(t, "127.0.0.1", e.http, ""), "shop.example", nil); status != "200" || err != nil {
		t.Errorf("afterwards: %s, %v", status, err)
	}
}
