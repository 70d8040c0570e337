package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
)

// The state is a Secret, and has the address of the leader's page. Somebody who can write the Secret must not
// be able to make pushers that stand by connect to other services.
func TestPagesThatAreBelieved(t *testing.T) {
	t.Parallel()
	pod := pageFlags{address: ":8090", advertise: "10.244.1.7"}
	local := pageFlags{address: "127.0.0.1:0", advertise: "127.0.0.1"}
	for said, want := range map[string]struct{ pod, local bool }{
		"10.244.2.9:8090":           {pod: true},
		"[fd00::7]:8090":            {pod: true},
		"[::ffff:10.244.2.9]:8090":  {pod: true},
		"10.96.0.1:443":             {}, // the API server
		"10.96.0.1:6443":            {},
		"10.244.2.9:0":              {},
		"169.254.169.254:8090":      {}, // the metadata of a cloud
		"[fe80::1]:8090":            {},
		"[fe80::1%eth0]:8090":       {},
		"0.0.0.0:8090":              {},
		"[::]:8090":                 {},
		"224.0.0.1:8090":            {},
		"255.255.255.255:8090":      {},
		"127.0.0.1:8090":            {local: true}, // it could be the Dataplane API on the same host
		"[::1]:5555":                {local: true},
		"[::ffff:127.0.0.1]:8090":   {local: true},
		"[::ffff:169.254.1.1]:8090": {},
	} {
		at := netip.MustParseAddrPort(said)
		if got := pod.believes(at); got != want.pod {
			t.Errorf("in a pod, %s: %v", said, got)
		}
		if got := local.believes(at); got != want.local {
			t.Errorf("on one machine, %s: %v", said, got)
		}
	}
	for said, want := range map[string]string{"[::]:8090": "10.244.1.7:8090", "127.0.0.1:4711": "10.244.1.7:4711", "nonsense": ""} {
		if got := pod.at(said); got != want {
			t.Errorf("%s: %q", said, got)
		}
	}
	if got := (&pageFlags{address: ":8090"}).at("[::]:8090"); got != "" {
		t.Errorf("advertised though nobody said so: %q", got)
	}
}

// The verb ui serves a page of a store and a state until it is interrupted. The page has the same data as the
// JSON output of verbs.
func TestUI(t *testing.T) {
	_, url, ids := filledStore(t)
	state := writeState(t, report.Status{Good: ids[2], Instances: []report.Instance{{Name: "edge-1", Reachable: true, InSync: true, Running: ids[2]}}})
	ctx, stop := context.WithCancel(t.Context())
	root := NewCommand()
	root.SetArgs([]string{"ui", "--store", url, "--state", state, "--ui-host", "edge.example.com"})
	out := newLog()
	root.SetOut(out)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	var page []string
	eventually.Holds(t, "the page is there", func() bool {
		page = regexp.MustCompile(`^http://127\.0\.0\.1:\d+/`).FindStringSubmatch(out.String())
		return page != nil
	})
	get(t, page[0], "edge-1")
	get(t, page[0]+"history", "the config three")
	for path, args := range map[string][]string{
		"api/v1/status":           {"status", "--state", state, "-o", "json"},
		"api/v1/diff?a=r1&b=head": {"diff", "r1", "head", "--store", url, "-o", "json"},
	} {
		_, printed, errs := pusherCommand(t, args...)
		var want, got any
		if err := json.Unmarshal([]byte(printed), &want); err != nil {
			t.Fatalf("%v: %s%s", err, printed, errs)
		}
		answer, err := http.Get(page[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err := json.Unmarshal(body, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v: the page has\n%s\nand the verb prints\n%s", path, err, body, printed)
		}
		if err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}
