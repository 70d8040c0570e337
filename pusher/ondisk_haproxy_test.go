package pusher

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
)

// For a short time, only the worker has a new endpoint, and the file lacks it. That time lasts for
// the job under way, a pause and a post. With many slots, a post takes long. Without this test's
// change, the file would be written once an hour. The test counts the posts, since the duration
// depends on the machine.
func TestDiskFollowsTheWorker(t *testing.T) {
	t.Parallel()
	const post = 500 * time.Millisecond
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
	for n := range 4 {
		name := fmt.Sprintf("endpoint-%d", n)
		address, before := echo(t, name), i.Count(http.MethodPost, "/configuration/raw")
		r.endpoints(address)
		eventually.Holds(t, "the worker serves from "+name, func() bool { return r.answersOnly("a", name) })
		served := time.Now()
		eventually.Holds(t, "the file has "+name, func() bool { return onDisk(address) })
		posts := i.Count(http.MethodPost, "/configuration/raw") - before
		if t.Logf("the window is %v, with %d posts of %v", time.Since(served), posts, post); posts > 2 {
			t.Errorf("the file follows the worker with the post number %d", posts)
		}
	}
}
