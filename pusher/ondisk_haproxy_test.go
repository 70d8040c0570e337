package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane/dataplanetest"
)

// A pusher that is killed when a backend serves, and a HAProxy that starts from its file
// after that: the backend serves. The file is otherwise written once an hour here.
func TestFailureKilledAndRestartedFromDiskAfterAllEndpointsWereReplaced(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a")
			r.options.PersistInterval = time.Hour
			one, two, three := echo(t, "one"), echo(t, "two"), echo(t, "three")
			r.endpoints(one)
			r.allRunAfter(r.publish(config("1", "")))
			i := r.instances["a"]
			restarted := func(endpoint string) {
				t.Helper()
				i.KillHAProxy()
				if err := i.StartHAProxy(); err != nil {
					t.Fatal(err)
				}
				if !r.answersOnly("a", endpoint) {
					text, _ := i.Config()
					t.Errorf("HAProxy started from disk does not answer from %s:\n%s", endpoint, text)
				}
			}
			for endpoint, address := range map[string]string{"two": two, "three": three} {
				r.endpoints(address)
				eventually(t, "a answers from "+endpoint, func() bool { return r.answersOnly("a", endpoint) })
				r.kill() // the file is written before the worker is changed
				restarted(endpoint)
				r.run()
			}
		})
	}
}
