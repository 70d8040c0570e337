package compiler_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// inMemory are objects that are read from nowhere.
type inMemory struct {
	compiler.Given
	objects inputs.Inputs
}

func (m inMemory) Read(context.Context, config.Config) (inputs.Gathered, error) {
	return inputs.Gathered{Objects: m.objects}, nil
}

// counting returns a checker that writes a line for each time that HAProxy is run.
func counting(tb testing.TB) (check *validate.Checker, runs func() int) {
	tb.Helper()
	plain := haproxy(tb)
	path, count := filepath.Join(tb.TempDir(), "haproxy"), filepath.Join(tb.TempDir(), "count")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho >>"+count+"\nexec "+plain.Path+" \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		tb.Fatal(err)
	}
	return &validate.Checker{Path: path, Version: plain.Version}, func() int {
		text, _ := os.ReadFile(count)
		return len(text)
	}
}

// judgingMany runs a compiler of so many Ingresses with a judge.
func judgingMany(t *testing.T, n int) (judge *compiler.Judge, runs func() int) {
	t.Helper()
	check, runs := counting(t)
	_, judge = judging(t, nil, func(o *compiler.Options) {
		o.Source.Objects, o.Checker = inMemory{compiler.Given{Name: "memory"}, many(n)}, check
		o.Source.Config.Snippets.Namespaces = config.Namespaces{"shop"}
	})
	return judge, runs
}

// atOnce has all Ingresses judged at once, and returns what was said of each.
func atOnce(t *testing.T, judge *compiler.Judge, ingresses []*networkingv1.Ingress) []string {
	t.Helper()
	out := make([]string, len(ingresses))
	var all sync.WaitGroup
	for i, ing := range ingresses {
		all.Go(func() { out[i] = said(t, judge, ing) })
	}
	all.Wait()
	return out
}

// said is what a judge says of an Ingress.
func said(t *testing.T, judge *compiler.Judge, ing *networkingv1.Ingress) string {
	t.Helper()
	v, err := judge.Ingress(t.Context(), ing)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("denied %t\n%s\n-- warnings --\n%s", len(v.Faults) > 0, texts(v.Faults), texts(v.Warnings))
}

// Many reviews at once cost little more than one, at 1,500 Ingresses.
func TestManyReviewsAtOnce(t *testing.T) {
	t.Parallel()
	judge, runs := judgingMany(t, 1500)
	var ingresses []*networkingv1.Ingress
	for i := range 50 {
		annotations := fmt.Sprintf(`hapsnap.dev/timeout-server: %ds`, i+1)
		if i%2 == 1 {
			annotations = `hapsnap.dev/rate-limit: lots`
		}
		ingresses = append(ingresses, ingressFrom(t, strings.Replace(
			reviewed(fmt.Sprint("new-", i), fmt.Sprint("new-", i, ".example"), annotations), "name: web,", "name: app-00001,", 1)))
	}
	alone := func() time.Duration {
		began := time.Now()
		said(t, judge, ingresses[0])
		return time.Since(began)
	}
	one := alone()
	before, began := runs(), time.Now()
	for i, said := range atOnce(t, judge, ingresses) {
		if want := i%2 == 1; strings.HasPrefix(said, "denied true") != want {
			t.Errorf("of the Ingress %d it is said: %s", i, said)
		}
	}
	took, n := time.Since(began), runs()-before
	t.Logf("%d runs of haproxy, %v", n, took)
	// One run for all that wait while the first is judged is usual; on a busy machine
	// they come in more parts.
	if n > 15 {
		t.Errorf("haproxy was run %d times", n)
	}
	// As busy as the machine is, one after the other would take 50 times as long as one.
	if one = max(one, alone()); took > 25*one {
		t.Errorf("that took %v, and one review %v", took, one)
	}
}

// What is said of an Ingress is the same whether it is reviewed alone or beside others,
// which are at fault, have its name or its host, or take from each other.
func TestReviewsTogetherAndAlone(t *testing.T) {
	t.Parallel()
	judge, _ := judgingMany(t, 20)
	to := func(service, ingress string) *networkingv1.Ingress {
		return ingressFrom(t, strings.Replace(ingress, "name: web,", "name: "+service+",", 1))
	}
	var ingresses []*networkingv1.Ingress
	for i := range 2 {
		name, host := fmt.Sprint("n", i), fmt.Sprint("n", i, ".example")
		ingresses = append(ingresses,
			to("app-00001", reviewed(name, host, "")),
			to("app-00001", reviewed("good-"+name, host, "hapsnap.dev/timeout-server: 5s")),
			to("app-00002", reviewed("same", "same.example", fmt.Sprintf("hapsnap.dev/timeout-server: %ds", i+1))),
			to("app-00002", reviewed("same", "same.example", "hapsnap.dev/timeout-server: "+strings.Repeat("x", i+1))),
			to("app-00003", reviewed("lines-"+name, "lines.example", fmt.Sprintf("hapsnap.dev/snippet: http-request frobnicate-%d", i))),
			to("app-00003", reviewed("table-"+name, host, fmt.Sprintf("hapsnap.dev/snippet: http-request track-sc0 src table gone_%d", i))),
			to("app-00003", reviewed("named-"+name, host, "hapsnap.dev/snippet: http-request set-var(txn.x) nbsrv(shop_app-00004_http)")),
			to("app-00003", reviewed("default-"+name, "app-00004.example", "")),
			to("app-00003", reviewed("canary-"+name, "app-00005.example", "hapsnap.dev/canary: 'true', hapsnap.dev/canary-weight: '10'")),
			to("app-00003", reviewed("wild-"+name, "'*.example'", "hapsnap.dev/ssl-passthrough: 'true'")),
			to("app-00003", reviewed("auth-"+name, host, "hapsnap.dev/auth-basic: users, hapsnap.dev/client-ca-secret: ca, hapsnap.dev/auth-url: 'http://app-00006/x'")),
		)
	}
	var alone []string
	for _, ing := range ingresses {
		alone = append(alone, said(t, judge, ing))
	}
	for i, together := range atOnce(t, judge, ingresses) {
		if together != alone[i] {
			t.Errorf("of %s it is said alone:\n%s\nand beside others:\n%s", ingresses[i].Name, alone[i], together)
		}
	}
	for i, ing := range ingresses {
		wrong := strings.HasPrefix(ing.Name, "lines") || strings.HasPrefix(ing.Name, "table") || ing.Name == "same" && strings.Contains(ing.Annotations["hapsnap.dev/timeout-server"], "x")
		if strings.HasPrefix(alone[i], "denied true") != wrong || strings.HasPrefix(alone[i], "error") {
			t.Errorf("of %s it is said: %s", ing.Name, alone[i])
		}
	}
}

// Reviews of 1,500 Ingresses, 50 at once, of one namespace and of 30.
func BenchmarkReviews(b *testing.B) {
	for _, namespaces := range []int{1, 30} {
		b.Run(fmt.Sprintf("%d namespaces", namespaces), func(b *testing.B) { benchmarkReviews(b, namespaces) })
	}
}

func benchmarkReviews(b *testing.B, namespaces int) {
	b.Helper()
	check := haproxy(b)
	all := many(1500)
	for i := range all.Ingresses {
		if n := i % namespaces; n > 0 {
			all.Ingresses[i].Ref.Namespace, all.Services[i].Ref.Namespace = fmt.Sprint("n", n), fmt.Sprint("n", n)
			all.Ingresses[i].Value.Namespace, all.Services[i].Value.Namespace = fmt.Sprint("n", n), fmt.Sprint("n", n)
		}
	}
	cfg := config.Default()
	judge := compiler.NewJudge(compiler.Source{}, check, nil)
	compiler.Compiled(judge, compiler.Source{Objects: inMemory{compiler.Given{Name: "memory"}, all}, Config: cfg})
	n := 0
	for b.Loop() {
		var running sync.WaitGroup
		for range 50 {
			n++
			text := reviewed(fmt.Sprint("new-", n), fmt.Sprint("new-", n, ".example"), "hapsnap.dev/timeout-server: 7s")
			running.Go(func() {
				if v, err := judge.Ingress(b.Context(), parsed(text)); err != nil || len(v.Faults) > 0 {
					b.Error(v, err)
				}
			})
		}
		running.Wait()
	}
}
