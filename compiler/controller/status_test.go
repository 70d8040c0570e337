package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A finding has the time when it was first found, even if its place changes. A finding that disappeared and
// came back is new.
func TestFindingsKnowTheirAge(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return first.Add(time.Duration(minutes) * time.Minute) }
	web, api := diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}, diag.Object{Kind: "Ingress", Namespace: "shop", Name: "api"}
	fault := func(o diag.Object, line int, message string) diag.Diagnostic {
		return diag.Diagnostic{Severity: diag.Error, Object: o, Position: diag.Position{File: "a.yaml", Line: line}, Message: message}
	}
	var known []Finding
	for n, c := range []struct {
		found []diag.Diagnostic
		want  []time.Time
	}{
		{[]diag.Diagnostic{fault(web, 7, "bad"), {Severity: diag.Warning, Object: api, Message: "odd"}}, []time.Time{at(0)}},
		{[]diag.Diagnostic{fault(api, 3, "bad"), fault(web, 9, "bad")}, []time.Time{at(1), at(0)}},
		{[]diag.Diagnostic{fault(api, 3, "worse")}, []time.Time{at(2)}},
		{[]diag.Diagnostic{fault(api, 3, "bad"), fault(api, 3, "worse")}, []time.Time{at(3), at(2)}},
	} {
		known = findings(known, c.found, at(n))
		var got []time.Time
		for _, f := range known {
			got = append(got, f.Since)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("compile %d: %s", n, diff)
		}
	}
	if got := known[1].Diagnostic(); got != fault(api, 3, "worse") {
		t.Errorf("diagnostic %v", got)
	}
}

// Files that cannot be read do not change the earlier findings.
func TestStatusKeepsFindingsWhileNothingIsRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	bad := []diag.Diagnostic{{Severity: diag.Error, Message: "bad"}, {Severity: diag.Warning, Message: "odd"}}
	head := backends(3).Number(4, snapshots.ID{})
	var s Status
	s.compiled(compiler.Result{Diagnostics: bad}, nil, now)
	s.published(head, nil, now)
	s.compiled(compiler.Result{}, errors.New("gone"), now.Add(time.Minute))
	s.published(head, nil, now.Add(time.Minute))
	r := s.Report()
	if len(r.Found) != 1 || r.Compiler.Warnings != 1 || r.Compiler.CompileError != "gone" || r.Compiler.Ready || !r.Compiler.LastSuccess.Equal(now) {
		t.Errorf("found %v, compiler %+v", r.Found, r.Compiler)
	}
	if r.Head.Snapshot != head.ID() || r.Head.Backends != 3 {
		t.Errorf("head %+v", r.Head)
	}
	s.compiled(compiler.Result{}, nil, now.Add(2*time.Minute))
	if r := s.Report(); len(r.Found) != 0 || !r.Compiler.Ready {
		t.Errorf("found %v, compiler %+v", r.Found, r.Compiler)
	}
}

// The report has a problem with the webhook's certificate, with its beginning, until it is solved. The compiler
// is ready all the same. Clients on other hosts do not see it.
func TestStatusOfTheWebhook(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := &Status{started: true}
	s.Webhook(errors.New("forbidden"), noon)
	s.Webhook(errors.New("gone"), noon.Add(time.Hour))
	r := s.Report()
	if w := r.Compiler.Webhook; w == nil || *w != (CredentialsReport{"gone", noon}) || !r.Compiler.Ready {
		t.Errorf("it is %+v, ready %t", w, r.Compiler.Ready)
	}
	if w := r.ForAnybody().Compiler.Webhook; w != nil {
		t.Errorf("strangers hear %+v", w)
	}
	s.Webhook(nil, noon.Add(2*time.Hour))
	if w := s.Report().Compiler.Webhook; w != nil {
		t.Errorf("once it is mended it is %+v", w)
	}
}

// elected is what an election knows.
type elected struct {
	holder string
	err    error
}

func (e elected) Holder() string { return e.holder }
func (e elected) Trouble() error { return e.err }

// A compiler that does not lead says who does, and does not claim that somebody does if nobody knows.
func TestStatusSaysWhoLeads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		election elected
		want     string
	}{
		{elected{holder: "edge-2"}, "another compiler leads: edge-2"},
		{elected{}, "no compiler leads"},
		{elected{holder: "edge-2", err: errors.New("connection refused")}, "it is not known who leads: connection refused"},
	} {
		var s Status
		s.elects(test.election)
		s.leads(true)
		if got := s.Report().Compiler.Leader; got != "" {
			t.Errorf("the leader says %q", got)
		}
		s.leads(false)
		if got := s.Report().Compiler.Leader; got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
