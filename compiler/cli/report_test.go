package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// reporterRig is a reporter with its writes.
type reporterRig struct {
	reporter
	now     controller.Report
	leads   bool
	written []controller.Report
	fails   error
	said    bytes.Buffer
}

func newReporterRig(t *testing.T) *reporterRig {
	t.Helper()
	r := &reporterRig{leads: true, now: controller.Report{Found: []controller.Finding{}, Compiler: &controller.CompilerReport{}}}
	r.reporter = reporter{
		report:  func() controller.Report { return r.now },
		leading: func() bool { return r.leads },
		log:     slog.New(slog.NewTextHandler(&r.said, nil)),
		write: func(_ context.Context, text []byte, _ time.Time) error {
			if r.fails != nil {
				return r.fails
			}
			var got controller.Report
			if err := json.Unmarshal(text, &got); err != nil {
				t.Error(err)
			}
			r.written = append(r.written, got)
			return nil
		},
	}
	return r
}

// at lets the reporter look at a time, and checks how often it has written since the last call.
func (r *reporterRig) at(t *testing.T, after time.Duration, want int, when string) {
	t.Helper()
	r.written = nil
	r.once(t.Context(), reportTime.Add(after))
	if len(r.written) != want {
		t.Errorf("%s: %d reports were written, want %d", when, len(r.written), want)
	}
}

func TestReporterWritesWhatIsNew(t *testing.T) {
	t.Parallel()
	r := newReporterRig(t)
	r.at(t, 0, 0, "nothing was compiled yet")
	r.now.Compiler.Ingresses = &ingress.Census{}
	r.at(t, time.Second, 1, "something was compiled")
	r.at(t, 6*time.Second, 0, "nothing is new")
	r.now.Compiler.LastSuccess = reportTime.Add(7 * time.Second)
	r.at(t, 11*time.Second, 0, "only the time of the last compile is new")
	r.at(t, 61*time.Second, 1, "it is a minute old")
	if got := r.written[0].Compiler.LastSuccess; !got.Equal(r.now.Compiler.LastSuccess) {
		t.Errorf("it says that the last compile was %v", got)
	}
	r.now.Found = []controller.Finding{{Kind: "Ingress", Namespace: "shop", Name: "web", Field: "spec", Reason: "wrong", Hint: "mend it"}}
	r.at(t, 66*time.Second, 1, "an object is left out")
	if got := r.written[0].Found; len(got) != 1 || got[0] != r.now.Found[0] {
		t.Errorf("it says %+v", got)
	}
	r.leads = false
	r.now.Found = []controller.Finding{}
	r.at(t, 71*time.Second, 0, "another leads")
	r.leads = true
	r.now.Found = []controller.Finding{{Reason: "wrong"}}
	r.at(t, 76*time.Second, 1, "it leads again")
}

// If nothing can be compiled from the beginning, the report says so.
func TestReporterTellsThatNothingCompiles(t *testing.T) {
	t.Parallel()
	r := newReporterRig(t)
	r.now.Compiler.CompileError = "a template is wrong"
	r.at(t, 0, 1, "nothing compiles")
}

// If a write fails, it is repeated later, and logged once.
func TestReporterTriesAgain(t *testing.T) {
	t.Parallel()
	r := newReporterRig(t)
	r.now.Compiler.Ingresses = &ingress.Census{}
	r.fails = errors.New("secrets is forbidden")
	r.at(t, 0, 0, "forbidden")
	r.at(t, 5*time.Second, 0, "still forbidden")
	if got := strings.Count(r.said.String(), "level=WARN"); got != 1 {
		t.Errorf("%d warnings:\n%s", got, r.said.String())
	}
	r.fails = nil
	r.at(t, 10*time.Second, 1, "allowed")
	if !strings.Contains(r.said.String(), "written again") {
		t.Errorf("the log does not say that it is written again:\n%s", r.said.String())
	}
}

// If a report is too large for a Secret, it says how much is left out, and has no statuses of objects.
func TestReportFitsIntoASecret(t *testing.T) {
	t.Parallel()
	var whole controller.Report
	whole.Compiler = &controller.CompilerReport{Ready: true}
	for range 10_000 {
		whole.Found = append(whole.Found, controller.Finding{Kind: "Ingress", Namespace: "evil", Reason: strings.Repeat("\"", 100)})
	}
	whole.Found = append(whole.Found, controller.Finding{Kind: "Ingress", Namespace: "shop", Name: "web", Reason: "is left out"})
	got, err := whole.Within(configmapstore.MaxReport)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > configmapstore.MaxReport || len(text) < configmapstore.MaxReport*9/10 {
		t.Errorf("the report has %d bytes, and there is room for %d", len(text), configmapstore.MaxReport)
	}
	if last := got.Found[len(got.Found)-1]; last.Namespace != "shop" {
		t.Errorf("the findings of one namespace displace those of another; the last one is %v", last)
	}
	if len(got.Found)+got.Withheld != len(whole.Found) || !got.Compiler.Ready {
		t.Errorf("it has %d findings, and says that %d have no room", len(got.Found), got.Withheld)
	}
}
