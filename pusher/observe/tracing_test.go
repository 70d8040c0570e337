package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	published = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	itsTrace  = "0af7651916cd43dd8448eb211c80319c"
)

// told returns the ended spans, in that order.
func told(r *tracetest.SpanRecorder) string {
	var b strings.Builder
	for _, s := range r.Ended() {
		result := ""
		for _, a := range s.Attributes() {
			if a.Key == "hapsnap.result" {
				result = " " + a.Value.AsString()
			}
		}
		fmt.Fprintf(&b, "%s%s %s\n", s.Name(), result, s.Status().Description)
	}
	return b.String()
}

func under(target snapshots.ID, phase rollout.Phase, wave int) rollout.State {
	return rollout.State{Rollout: &rollout.Rollout{Target: target, Phase: phase, Wave: wave, Members: []string{"a"}}}
}

// The spans of a rollout follow its state, however it ends.
func TestSpansFollowTheRollout(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	failed := rollout.State{Good: one, Failed: []rollout.Failure{{Snapshot: two, Reason: "a: refused"}}}
	undoing := under(two, rollout.Undoing, 0)
	undoing.Failed = failed.Failed
	again := under(two, rollout.Pushing, 0)
	again.Rollout.Started = time.Unix(1, 0)
	for name, test := range map[string]struct {
		states []rollout.State
		want   string
	}{
		"done":      {[]rollout.State{under(one, rollout.Pushing, 0), under(one, rollout.Soaking, 0), under(one, rollout.Pushing, 1), {Good: one}}, "wave \nwave \nrollout done \n"},
		"failed":    {[]rollout.State{under(two, rollout.Pushing, 0), undoing, failed}, "wave \nundo \nrollout failed a: refused\n"},
		"replaced":  {[]rollout.State{under(one, rollout.Pushing, 0), under(two, rollout.Pushing, 0)}, "wave \nrollout replaced \n"},
		"again":     {[]rollout.State{under(two, rollout.Pushing, 0), again}, "wave \nrollout replaced \n"},
		"no change": {[]rollout.State{{Good: one}, {Good: two}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := tracetest.NewSpanRecorder()
			spans := spans{tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")}
			for _, s := range test.states {
				spans.follow(s, published, true)
			}
			if got := told(recorder); got != test.want {
				t.Errorf("spans\n%swant\n%s", got, test.want)
			}
			for _, s := range recorder.Started() {
				if got := s.SpanContext().TraceID().String(); got != itsTrace {
					t.Errorf("%s is in trace %s", s.Name(), got)
				}
			}
		})
	}
}

// While the snapshot is not read, its trace is not known, and no other one begins.
func TestSpansWaitForTheSnapshot(t *testing.T) {
	t.Parallel()
	one := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	recorder := tracetest.NewSpanRecorder()
	spans := spans{tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")}
	spans.follow(under(one, rollout.Soaking, 0), "", false)
	if n := len(recorder.Started()); n != 0 {
		t.Errorf("%d spans before the snapshot was read", n)
	}
	spans.follow(under(one, rollout.Soaking, 0), published, true)
	if n := len(recorder.Started()); n != 2 {
		t.Errorf("%d spans, want 2", n)
	}
}

// Pushes of a rollout are in its trace. Other pushes only link to the snapshot's trace.
func TestSpansOfPushes(t *testing.T) {
	t.Parallel()
	one := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	for purpose, inside := range map[rollout.Purpose]bool{
		rollout.Wave: true, rollout.Undo: true, rollout.CatchUp: false, rollout.Reshape: false,
	} {
		recorder := tracetest.NewSpanRecorder()
		spans := spans{tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")}
		spans.follow(under(one, rollout.Pushing, 0), published, true)
		o := Observer{spans: spans}
		ctx := o.PushSpan(t.Context(), rollout.Push{Instance: "a", Snapshot: one, Purpose: purpose}, published)
		EndJob(ctx, false, rollout.Refused, fmt.Errorf("%w: \n\n a  lot", push.ErrRefused))
		ended := recorder.Ended()[0]
		if got := ended.SpanContext().TraceID().String() == itsTrace; got != inside {
			t.Errorf("%s: in the trace of the snapshot: %v, want %v", purpose, got, inside)
		}
		if links := len(ended.Links()); (links == 1) == inside {
			t.Errorf("%s: %d links", purpose, links)
		}
		if got := ended.Status().Description; got != push.ErrRefused.Error()+": a lot" {
			t.Errorf("%s: error %q", purpose, got)
		}
	}
}

// Without a trace there is no link.
func TestNoLinkWithoutATrace(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	spans := spans{tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")}
	o := Observer{spans: spans}
	EndJob(o.UpdateSpan(t.Context(), "a", snapshots.ID{}, ""), false, rollout.Applied, nil)
	if links := recorder.Ended()[0].Links(); len(links) != 0 {
		t.Errorf("links %v", links)
	}
}
