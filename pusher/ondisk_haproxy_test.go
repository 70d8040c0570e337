package pusher

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// The window in which only the worker serves a backend is three posts at most, where the
// worker changes before the file: with many slots, whose posts take long. The file is
// otherwise written once an hour here.
func TestDiskFollowsTheWorkerWithinThreePosts(t *testing.T) {
	t.Parallel()
	const post, busy = 500 * time.Millisecond, 3 * time.Second // the latter for the machine
	r := newRig(t, dataplanetest.V32, "a")
	r.options.PersistInterval = time.Hour
	r.endpoints(echo(t, "first"))
	r.allRunAfter(r.publish(strings.Replace(config("1", ""), "shop/web:http", "shop/web:http slots=450", 1)))
	i := r.instances["a"]
	i.Inject(dataplanetest.Slow(post).On(http.MethodPost, "/configuration/raw"))
	onDisk := func(address string) bool {
		text, err := i.Config()
		return err == nil && strings.Contains(text, " "+address)
	}
	var longest time.Duration
	for n := range 4 {
		name := fmt.Sprintf("endpoint-%d", n)
		address := echo(t, name)
		r.endpoints(address)
		eventually(t, "the worker serves from "+name, func() bool { return r.answersOnly("a", name) })
		served := time.Now()
		eventually(t, "the file has "+name, func() bool { return onDisk(address) })
		longest = max(longest, time.Since(served))
	}
	t.Logf("the longest window is %v, with posts of %v", longest, post)
	if longest > 3*post+busy {
		t.Errorf("the file follows the worker after %v", longest)
	}
}
