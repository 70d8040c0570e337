package push

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func TestForeignText(t *testing.T) {
	t.Parallel()
	pusher := Pusher{State: "abc", Place: "/state.json"}
	// file is a haproxy.cfg of a version, as it was posted on the one before.
	file := func(version, follows int64) []byte {
		return fmt.Appendf(nil, "# _version=%d\n%sglobal\n  node n\n", version, mark{pusher, follows}.line())
	}
	for name, test := range map[string]struct {
		raw    dataplane.Raw
		marked bool
		want   string // what the reason begins with
	}{
		"as it was posted":                   {raw: dataplane.Raw{Config: file(5, 4), Version: 5}, marked: true},
		"a post is under way":                {raw: dataplane.Raw{Config: file(5, 4), Version: 4}, marked: true},
		"edited, and the API has noticed":    {raw: dataplane.Raw{Config: file(5, 3), Version: 5}, marked: true, want: "it was changed after it was written"},
		"edited and put back":                {raw: dataplane.Raw{Config: file(5, 4), Version: 6}, marked: true, want: "it was changed and put back"},
		"edited, which its checksum tells":   {raw: dataplane.Raw{Config: file(5, 4), Version: 5, Checksum: "other"}, marked: true, want: "it was edited after it was written"},
		"without a mark where there was one": {raw: dataplane.Raw{Config: []byte("global\n"), Version: 5}, marked: true, want: "no pusher wrote it"},
		"without a mark, as ever":            {raw: dataplane.Raw{Config: []byte("global\n"), Version: 5}},
	} {
		if got := foreignText(test.raw, test.marked); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
