package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/testing/output"
)

// storage answers as an API server whose etcd refuses some objects.
type storage struct {
	mu      sync.Mutex
	refuses func(object string) bool
	hangs   bool // it refuses by no answer
	limited bool // it refuses because of a limit of the object's namespace, as the plugin EventRateLimit does
	tries   map[string][]time.Time
}

// tried returns when an object was to be written.
func (s *storage) tried(object string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tries[object])
}

// refuse forgets the tries, and from now on refuses what refuses says.
func (s *storage) refuse(refuses func(object string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses, s.tries = refuses, map[string][]time.Time{}
}

func (s *storage) RoundTrip(r *http.Request) (*http.Response, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	object := path.Base(r.URL.Path) // of a patch
	if _, created, ok := strings.Cut(string(data), `"name":"`); ok {
		object = created
	}
	object, _, _ = strings.Cut(object, ".")
	if s.hangs && s.refuses(object) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[object] = append(s.tries[object], time.Now())
	code, body := http.StatusCreated, `{"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {}}`
	if s.refuses(object) {
		code = http.StatusInternalServerError
		body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError", "message": "etcdserver: no leader"}`
		if s.limited {
			code = http.StatusTooManyRequests
			body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "limit reached on type Namespace for key shop"}`
		}
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// recorded runs a recorder until the end of a test, whose log it returns.
func recorded(t *testing.T, s *storage) (*Recorder, *output.Buffer) {
	t.Helper()
	s.tries = map[string][]time.Time{}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	var log output.Buffer
	r := New(Options{Program: "compiler", Events: client.EventsV1(), Leader: Always{}, Instance: "compiler-0", Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return r, &log
}

// pass lets time pass, and waits for what was due.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A short fault of etcd looks like a refusal of each object. They are written soon after it, and the log has two lines of it.
func TestShortFaultDelaysLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &storage{refuses: func(string) bool { return time.Since(begin) < 10*time.Second }}
		r, log := recorded(t, s)
		var all []Event
		for n := range 20 {
			all = append(all, said(fmt.Sprint("web", n), "bad"))
		}
		r.Say(all, nil, begin)
		pass(25 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.ledger.said) != 20 || len(r.ledger.refused) != 0 {
			t.Errorf("15 s after a fault of 10 s, %d of 20 Events are written, and %d are refused:\n%s", len(r.ledger.said), len(r.ledger.refused), log.String())
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("the log has %d lines:\n%s", n, log.String())
		}
	})
}

// What is always refused is tried less and less often, holds up no other, and is one line of the log. Once it is written, the
// next refusal is like the first.
func TestWhatIsRefusedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin, large := time.Now(), func(object string) bool { return object == "large" }
		s := &storage{refuses: large}
		r, log := recorded(t, s)
		r.Say([]Event{said("large", "bad"), said("web", "bad")}, nil, begin)
		pass(time.Second)
		if len(s.tried("web")) != 1 {
			t.Error("the other one waits")
		}
		pass(20 * time.Minute)
		var after []string
		for _, at := range s.tried("large") {
			after = append(after, at.Sub(begin).Round(time.Second).String())
		}
		if got := strings.Join(after, " "); got != "0s 2s 6s 14s 30s 1m2s 2m6s 4m14s 8m30s 13m30s 18m30s" {
			t.Errorf("tried after %s", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "object=\"Ingress /large\"") {
			t.Errorf("the log has %d lines:\n%s", n, log.String())
		}
		s.refuse(func(string) bool { return false })
		pass(RetryOne)
		if !strings.Contains(log.String(), "does not refuse it any more") {
			t.Error(log.String())
		}
		s.refuse(large)
		pass(refresh - time.Minute) // it still holds, and is renewed
		for range 120 {
			pass(time.Second)
		}
		tried := s.tried("large")
		if len(tried) < 2 {
			t.Fatalf("tried %d times", len(tried))
		}
		if pause := tried[1].Sub(tried[0]); pause.Round(time.Second) != RetryFirst {
			t.Errorf("after it was written once, tried again after %s", pause)
		}
	})
}

// Many that are refused for good are logged at most once each, one a minute.
func TestManyRefusalsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &storage{refuses: func(string) bool { return true }}
		r, log := recorded(t, s)
		var all []Event
		for n := range 100 {
			all = append(all, said(fmt.Sprint("web", n), "bad"))
		}
		r.Say(all, nil, time.Now())
		pass(10*time.Minute + time.Second)
		if n := strings.Count(log.String(), "\n"); n < 5 || n > 11 {
			t.Errorf("the log has %d lines in ten minutes:\n%s", n, log.String())
		}
	})
}

// A tenant has so many objects for which Events are refused that some are due all the time. The Events of others are written
// and renewed nevertheless, and none of the refused ones is forgotten.
func TestMultitudeOfRefusalsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 1600
		s := &storage{refuses: func(object string) bool { return strings.HasPrefix(object, "shop") }}
		r, _ := recorded(t, s)
		var all []Event
		for n := range many {
			all = append(all, said(fmt.Sprint("shop", n), "bad"))
		}
		all = append(all, said("first", "bad"))
		r.Say(all, nil, time.Now())
		pass(25 * time.Minute)
		if len(s.tried("first")) != 1 {
			t.Fatalf("the first other one was tried %d times", len(s.tried("first")))
		}
		r.Say(append(all, said("second", "bad")), nil, time.Now())
		pass(2 * time.Second)
		if len(s.tried("second")) != 1 {
			t.Error("another one waits")
		}
		pass(refresh)
		if len(s.tried("first")) != 2 || len(s.tried("second")) != 2 {
			t.Errorf("written and renewed %d and %d times", len(s.tried("first")), len(s.tried("second")))
		}
		pass(20 * time.Minute)
		for n := range many {
			if tries := s.tried(fmt.Sprint("shop", n)); len(tries) < 2 || time.Since(tries[len(tries)-1]) > 20*time.Minute {
				t.Fatalf("%d was tried at %v", n, tries)
			}
		}
	})
}

// A tenant uses up the Events of its namespace. Those of others are written, and its own are once there is room.
func TestLimitOfANamespaceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &storage{limited: true, refuses: func(object string) bool { return object == "shop" }}
		r, log := recorded(t, s)
		r.Say([]Event{said("shop", "bad"), said("web", "bad")}, nil, time.Now())
		pass(10 * time.Second)
		if len(s.tried("web")) != 1 || strings.Contains(log.String(), "cannot write to the cluster") {
			t.Errorf("the Event of another one was tried %d times:\n%s", len(s.tried("web")), log.String())
		}
		s.refuse(func(string) bool { return false })
		pass(RetryOne)
		if len(s.tried("shop")) != 1 {
			t.Errorf("the Event was tried %d times after it had been refused", len(s.tried("shop")))
		}
	})
}

// Nobody answers what is written for one object, such as where a webhook of its namespace does not. Others do not wait for it.
func TestEventThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &storage{hangs: true, refuses: func(object string) bool { return object == "shop" }}
		r, log := recorded(t, s)
		r.Say([]Event{said("shop", "bad"), said("web", "bad"), said("api", "bad")}, nil, time.Now())
		pass(time.Minute)
		if len(s.tried("web")) != 1 || len(s.tried("api")) != 1 {
			t.Errorf("the Events of others were tried %d and %d times:\n%s", len(s.tried("web")), len(s.tried("api")), log.String())
		}
	})
}

func TestWhatConcernsOneObject(t *testing.T) {
	t.Parallel()
	kind := schema.GroupResource{Resource: "events"}
	for name, test := range map[string]struct {
		err error
		one bool
	}{
		"a role lacks it":                  {apierrors.NewForbidden(kind, "web", nil), true},
		"etcd refuses it":                  {apierrors.NewInternalError(io.ErrUnexpectedEOF), true},
		"a limit of its namespace":         {apierrors.NewTooManyRequestsError("limit reached on type Namespace for key shop"), true},
		"the API server is busy":           {apierrors.NewTooManyRequests("too many requests", 1), false},
		"it says so in the header":         {apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "post", kind, "web", "", 1, true), false},
		"it is about to end":               {apierrors.NewServiceUnavailable("shutting down"), false},
		"it does not know who that is":     {apierrors.NewUnauthorized("no"), false},
		"nobody answers":                   {io.ErrUnexpectedEOF, false},
		"it took too long, and ended that": {apierrors.NewTimeoutError("timeout", 1), false},
	} {
		if got := OfOne(fmt.Errorf("write: %w", test.err)); got != test.one {
			t.Errorf("%s: of one object: %t", name, got)
		}
	}
}
