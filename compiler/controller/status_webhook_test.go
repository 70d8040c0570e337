package controller

import (
	"errors"
	"testing"
	"time"
)

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
