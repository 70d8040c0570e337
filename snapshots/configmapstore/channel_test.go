package configmapstore

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func channelIDs() []snapshots.ID {
	return []snapshots.ID{{Revision: 11, Short: "0123456789"}, {Revision: 12, Short: "9876543210"}}
}

func TestFieldsOfChannel(t *testing.T) {
	t.Parallel()
	ids := channelIDs()
	c := channel.Channel{}.
		Reject(channel.Rejection{Digest: snapshots.Digest("sha256:" + strings.Repeat("a", 64)), Snapshot: snapshots.ID{Revision: 10, Short: strings.Repeat("a", 10)}, Reason: "a: refused:\nport in use", At: noon}).
		Pinned(channel.Pin{Snapshot: ids[0], By: "ann", Reason: "the sale is off", At: noon}).
		Overridden(channel.Override{Snapshot: ids[1], By: "ann", Expires: noon.Add(time.Hour)}).
		Paused(channel.Pause{}).Approve(ids[1]).Approve(ids[0])
	got, err := fieldsOf(c)
	at := noon.Format(time.RFC3339)
	want := map[string]string{
		"pin":             "r000011-0123456789\nby: ann\nat: " + at + "\nreason: the sale is off",
		"override":        "r000012-9876543210\nuntil: " + noon.Add(time.Hour).Format(time.RFC3339) + "\nby: ann",
		"pause":           "true",
		"requireApproval": "false",
		"approved":        "r000011-0123456789\nr000012-9876543210\n",
		"rejected":        "- at: \"" + at + "\"\n  digest: sha256:" + strings.Repeat("a", 64) + "\n  reason: |-\n    a: refused:\n    port in use\n  snapshot: r000010-aaaaaaaaaa\n",
	}
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// What is written is read back unchanged, whatever the names and reasons of people.
func TestFieldsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	text := func() string {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteString([]string{"a", "B", " ", "\n", ":", `"`, "'", "\r", "\t", "#", "by: x", "ü", `\`, "- "}[r.IntN(14)])
		}
		return b.String()
	}
	ids := channelIDs()
	for range 2000 {
		c := channel.Channel{}.WithApproval(r.IntN(2) == 0).Pinned(channel.Pin{Snapshot: ids[0], By: text(), Reason: text(), At: noon}).
			Paused(channel.Pause{By: text(), Reason: text()}).
			Overridden(channel.Override{Snapshot: ids[1], By: text(), Reason: text(), Expires: noon}).
			Confirmed(channel.Confirmation{Loss: "3f2a91c0", By: text(), Reason: text(), At: noon}).
			Promoted(channel.Order{Snapshot: ids[1], Full: r.IntN(2) == 0, By: text(), Reason: text(), At: noon}).
			Aborted(channel.Order{Snapshot: ids[0], By: text(), Reason: text(), At: noon}).
			Reject(channel.Rejection{Digest: snapshots.Digest("sha256:" + strings.Repeat("a", 64)), Snapshot: ids[1], Reason: text(), At: noon})
		if r.IntN(2) == 0 {
			c = c.Approve(ids[r.IntN(2)])
		}
		fields, err := fieldsOf(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := channelOf(fields, nil)
		if diff := gocmp.Diff(c, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatal(err, diff, fields)
		}
	}
}

func TestFieldsOfPeople(t *testing.T) {
	t.Parallel()
	ids := channelIDs()
	pinned := channel.Channel{}.Pinned(channel.Pin{Snapshot: ids[1]})
	for name, test := range map[string]struct {
		data map[string]string
		want channel.Channel
	}{
		"by revision":       {map[string]string{"pin": "r12"}, pinned},
		"as a name":         {map[string]string{"pin": "r000012"}, pinned},
		"in full":           {map[string]string{"pin": " r000012-9876543210\n"}, pinned},
		"one that is gone":  {map[string]string{"pin": "r000007-0000000000"}, channel.Channel{}.Pinned(channel.Pin{Snapshot: snapshots.ID{Revision: 7, Short: "0000000000"}})},
		"nothing any more":  {map[string]string{"pin": "", "pause": "false", "approved": "", "rejected": ""}, channel.Channel{}},
		"with a note":       {map[string]string{"pin": "r12", "note": "call us"}, pinned},
		"pause":             {map[string]string{"pause": "true"}, channel.Channel{}.Paused(channel.Pause{})},
		"pause by somebody": {map[string]string{"pause": "true\nreason: black friday: all of it"}, channel.Channel{}.Paused(channel.Pause{Reason: "black friday: all of it"})},
		"override":          {map[string]string{"override": "r12\nuntil: 2026-01-02T15:04:05+01:00"}, channel.Channel{}.Overridden(channel.Override{Snapshot: ids[1], Expires: time.Date(2026, 1, 2, 14, 4, 5, 0, time.UTC)})},
		"abort":             {map[string]string{"abort": "r12"}, channel.Channel{}.Aborted(channel.Order{Snapshot: ids[1]})},
		"promote":           {map[string]string{"promote": "r12\nfull: true"}, channel.Channel{}.Promoted(channel.Order{Snapshot: ids[1], Full: true})},
		"approvals":         {map[string]string{"requireApproval": "true", "approved": "r12, r11"}, channel.Channel{}.WithApproval(true).Approve(ids[0]).Approve(ids[1])},
	} {
		got, err := channelOf(test.data, ids)
		if diff := gocmp.Diff(test.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestFieldsThatAreNone(t *testing.T) {
	t.Parallel()
	for want, data := range map[string]map[string]string{
		"data.requireApproval: neither it nor any other key of a channel is there": {"note": "call us"},
		`data.pin: the store holds no snapshot "r13"`:                              {"pin": "r13"},
		`data.pin: the store holds no snapshot "banana"`:                           {"pin": "banana"},
		`data.pin: "because" is not a line of by, at, reason`:                      {"pin": "r12\nbecause"},
		`data.pin: "until: now" is not a line of by, at, reason`:                   {"pin": "r12\nuntil: now"},
		`data.pin: "noon" is not a time such as 2026-01-02T15:04:05Z`:              {"pin": "r12\nat: noon"},
		"data.override: the line until: TIME is missing":                           {"override": "r12"},
		`data.abort: "full: true" is not a line of by, at, reason`:                 {"abort": "r12\nfull: true"},
		`data.promote: "1" is neither true nor false`:                              {"promote": "r12\nfull: 1"},
		`data.pause: "yes" is neither true nor false`:                              {"pause": "yes"},
		`data.requireApproval: "1" is neither true nor false`:                      {"requireApproval": "1"},
		`data.approved: the store holds no snapshot "r9"`:                          {"approved": "r12 r9"},
		"data.pinn: no channel has it":                                             {"pinn": "r12", "pause": "true"},
		"data.rejected: ":                                                          {"rejected": "r12"},
		`spec.rejected[0] has the digest "x"`:                                      {"rejected": "- {digest: x}"},
	} {
		if _, err := channelOf(data, channelIDs()); !errors.Is(err, channel.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", data, err, want)
		}
	}
}

func TestManagerOf(t *testing.T) {
	t.Parallel()
	type texts = map[string]string
	flux := texts{"kustomize.toolkit.fluxcd.io/name": "edge", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for want, o := range map[string]metav1.ObjectMeta{
		"Argo CD (edge:/ConfigMap:edge/edge-channel)": {Annotations: texts{"argocd.argoproj.io/tracking-id": "edge:/ConfigMap:edge/edge-channel"}},
		"Argo CD (application edge)":                  {Labels: texts{"argocd.argoproj.io/instance": "edge"}},
		"Flux (Kustomization flux-system/edge)":       {Labels: flux},
		"Flux (HelmRelease flux-system/edge)":         {Labels: texts{"helm.toolkit.fluxcd.io/name": "edge", "helm.toolkit.fluxcd.io/namespace": "flux-system"}},
		"":                                            {Labels: texts{"app.kubernetes.io/name": "edge"}},
	} {
		if got := managerOf(&corev1.ConfigMap{ObjectMeta: o}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for annotation, value := range map[string]string{"kustomize.toolkit.fluxcd.io/reconcile": "disabled", "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"} {
		if got := managerOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: flux, Annotations: texts{annotation: value}}}); got != "" {
			t.Errorf("%s: %s: managed by %s", annotation, value, got)
		}
	}
	if got := managerOf(newChannel("edge", nil)); got != "" {
		t.Errorf("our own is managed by %s", got)
	}
}

func TestChannelManager(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	if got, err := s.ChannelManager(t.Context()); err != nil || got != "" {
		t.Errorf("without a channel: %q, %v", got, err)
	}
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{At: noon}); return nil }
	if err := s.UpdateChannel(t.Context(), "pause", noon, pause); err != nil {
		t.Fatal(err)
	}
	o := p.object("edge-channel")
	o.Labels["argocd.argoproj.io/instance"] = "edge"
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ChannelManager(t.Context()); err != nil || got != "Argo CD (application edge)" {
		t.Errorf("%q, %v", got, err)
	}
}
