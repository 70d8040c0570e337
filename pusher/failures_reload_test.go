package pusher

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestFailureHAProxyCannotBeAskedToReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	r.instances["a"].Inject(dataplanetest.MasterSocketGone().On("", "").Times(20))
	r.allRun(r.publish(config("2", "")))
	if rejected := r.seen().Rejected; len(rejected) > 0 {
		t.Errorf("the snapshot was blamed for it: %+v", rejected)
	}
}

// Somebody else posts what does not start, without waiting for the reload: the API puts
// the file back and keeps the rest in its memory, from where anybody's next change
// would bring it to disk again.
func TestFailureReloadAfterA202(t *testing.T) {
	t.Parallel()
	r := inspecting(t, dataplanetest.V32, echo(t, "one"))
	g := r.throughGate("a")
	r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync })
	api, workers := r.api("a"), r.workers()
	text, err := r.instances["a"].Config()
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "\nbackend ", strings.ReplaceAll(broken, "    ", "  ")+"\nbackend ", 1)
	g.once() // the pusher would put the file right before HAProxy reads it
	posted := r.post("a", text, dataplane.PostOptions{})
	eventually(t, "the reload has failed", func() bool {
		reload, err := api.Reload(t.Context(), posted.ReloadID)
		return err == nil && reload.Status == dataplane.ReloadFailed
	})
	close(g.open)
	r.agree("a")
	r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync })
	if now := r.workers(); !slices.Equal(now, workers) {
		t.Errorf("the worker is %v, was %v", now, workers)
	}
}

// The API takes a certificate, schedules the reload that is to load it, and that fails.
func TestFailureReloadForACertificateAfterA202(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.secret(nil)
	id := r.publishTLS("1")
	r.allRunAfter(id)
	r.instances["a"].Inject(dataplanetest.CertificateReloadFails("[ALERT] no").On(http.MethodPut, "/storage/ssl_certificates").Times(1))
	second := r.secret(nil)
	eventually(t, "it is said", func() bool { return strings.Contains(r.logged(), "reload failed: [ALERT] no") })
	eventually(t, "a serves the new certificate", func() bool { return r.served("a", "shop.example.com") == second })
	r.allRun(id)
	if rejected := r.seen().Rejected; len(rejected) > 0 {
		t.Errorf("the snapshot was blamed for it: %+v", rejected)
	}
}

// The file is put back, the memory of the API is not. The pusher heals it before
// anybody's next change brings the failed text to disk again.
func TestFailureReloadLeavesTheMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	bad := r.publish(config("2", broken))
	r.until("it is rejected", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Snapshot == bad })
	r.allRun(good)
	r.agree("a")
	r.allRun(r.publish(config("3", "")))
	if got := []int{r.reloads("a"), r.reloads("b")}; !slices.Equal(got, []int{3, 2}) {
		t.Errorf("a and b were reloaded %v times, want 3, of which one failed, and 2", got)
	}
}

// The API ends before it reloads, and does not know that it was to. On disk is what
// should run, and the worker runs something else.
func TestFailureAPIRestartedWithAReloadPending(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32)
	r.names = []string{"a"}
	r.addInstanceWith("a", dataplanetest.Options{ReloadDelay: time.Hour})
	r.writeFleet("a")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	r.allRunAfter(first)
	second := r.publish(config("2", ""))
	r.allRun(second)
	text, err := r.instances["a"].Config()
	if err != nil {
		t.Fatal(err)
	}
	r.channel(func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: first}) })
	r.allRun(first)
	r.kill()
	if posted := r.post("a", text, dataplane.PostOptions{}); posted.ReloadID == "" {
		t.Fatal("no reload is pending")
	}
	if err := r.instances["a"].Restart(); err != nil {
		t.Fatal(err)
	}
	r.channel(channel.Channel.Unpinned)
	r.options.ReloadTimeout = 10 * time.Second // it is waited for
	r.allRunAfter(second)
	if revision, _, err := r.get("a"); revision != "2" || r.reloads("a") != 4 {
		t.Errorf("a answers from revision %q after %d reloads, want 2 after 4: %v", revision, r.reloads("a"), err)
	}
}

// api is a client of an instance's API, for somebody other than the pusher.
func (r *rig) api(name string) *dataplane.Client {
	r.t.Helper()
	c, err := dataplane.New(dataplane.Options{URL: r.instances[name].URL(), Username: "admin", Password: "secret"})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// post has somebody else post a configuration, whatever the version is by now.
func (r *rig) post(name, text string, o dataplane.PostOptions) dataplane.Posted {
	r.t.Helper()
	var posted dataplane.Posted
	eventually(r.t, "the post is taken", func() bool {
		raw, err := r.api(name).Raw(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		o.Version = raw.Version
		posted, err = r.api(name).PostRaw(r.t.Context(), []byte(text), o)
		if err != nil && !errors.Is(err, dataplane.ErrConflict) {
			r.t.Fatal(err)
		}
		return err == nil
	})
	return posted
}

// agree waits until the memory of an instance's API is what is on disk, and not
// what failed to start.
func (r *rig) agree(name string) {
	r.t.Helper()
	eventually(r.t, "the memory of the API is what is on disk", func() bool {
		raw, err := r.api(name).Raw(r.t.Context())
		return err == nil && strings.Contains(string(raw.Config), fmt.Sprintf("# _version=%d\n", raw.Version))
	})
	url := r.instances[name].URL() + "/v3/services/haproxy/configuration/frontends/taken/binds"
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.SetBasicAuth("admin", "secret")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusNotFound && strings.TrimSpace(string(body)) != "[]" {
		r.t.Errorf("the API still has what failed to start: %d %s", answer.StatusCode, body)
	}
}
