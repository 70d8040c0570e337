package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

func (s *story) startFleet(ctx context.Context) error {
	if err := errors.Join(s.startServices(ctx), s.startInstances()); err != nil {
		return err
	}
	for i := 1; i <= instanceCount; i++ {
		s.say("   %s  http://%s:%d  https://%s:%d  Dataplane API http://%s:%d",
			instanceName(i), instanceAddress(i), httpPort, instanceAddress(i), httpsPort, instanceAddress(i), apiPort)
	}
	return nil
}

func (s *story) compile(ctx context.Context) error {
	s.say("   $ compiler run -f manifests --config config.yaml --templates templates --store \"git+file://$PWD/edge.git?branch=edge\" &")
	if err := s.copyIn("config.yaml", "config.yaml"); err != nil {
		return err
	}
	err := s.start(ctx, "compiler", s.compiler, "run", "-f", "manifests", "--config", "config.yaml",
		"--templates", "templates", "--store", s.storeURL(), "--haproxy", s.haproxy)
	if err != nil {
		return err
	}
	if err := s.published(ctx, 1); err != nil {
		return err
	}
	return s.showLog(ctx, 1)
}

// showLog prints the subjects of the newest commits.
func (s *story) showLog(ctx context.Context, count int) error {
	return s.show(ctx, fmt.Sprintf("git log -%d --format=%%s", count),
		"git", "-C", "edge.git", "log", fmt.Sprintf("-%d", count), "--format=%s", "edge")
}

func (s *story) push(ctx context.Context) error {
	s.say("   $ pusher run --store \"git+file://$PWD/edge.git?branch=edge\" --instances fleet.yaml --live manifests &")
	err := s.start(ctx, "pusher", s.pusher, "run", "--store", s.storeURL(), "--instances", "fleet.yaml",
		"--live", "manifests", "--state", "pusher.json", "--poll-interval", "250ms", "--ui-address", pageAddress)
	if err != nil {
		return err
	}
	if err := everywhere(ctx, "http://welcome.example.com:18080/", "welcome-1"); err != nil {
		return err
	}
	for _, wave := range waves.FindAllStringSubmatch(s.programs[len(s.programs)-1].log(), -1) {
		s.say("   wave %s: %s", wave[1], wave[2])
	}
	return s.showStatus(ctx)
}

// waves finds in the pusher's log who belongs to which wave.
var waves = regexp.MustCompile(`phase=pushing wave=(\d+) members="?\[([^]]*)\]`)

func (s *story) request(ctx context.Context) error {
	for _, r := range []struct {
		url    string
		bodies []string
	}{
		{"http://shop.example.com:18080/", []string{"web-1", "web-2"}},
		{"http://shop.example.com:18080/cart/items", []string{"cart-1"}},
		{"http://shop.example.com:18080/cart/checkout", []string{"checkout-1"}},
		{"http://blog.example.com:18080/2026/07", []string{"blog-1"}},
		{"http://unknown.example.com:18080/", []string{"welcome-1"}},
		{"https://shop.example.com:18443/cart/checkout", []string{"checkout-1"}},
	} {
		if err := everywhere(ctx, r.url, r.bodies...); err != nil {
			return err
		}
		s.got(r.url, strings.Join(r.bodies, " or "))
	}
	for i := 1; i <= instanceCount; i++ {
		if err := verifyTLS(ctx, i, s.authorities); err != nil {
			return err
		}
	}
	s.say("   the certificate of Secret shop/web-tls was verified by the client")
	return nil
}

func (s *story) addRoute(ctx context.Context) error {
	s.say("   $ cp changes/sale.yaml manifests/")
	if err := s.copyIn("changes/sale.yaml", "manifests/sale.yaml"); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "sale-1"); err != nil {
		return err
	}
	s.got("http://shop.example.com:18080/sale/shoes", "sale-1")
	diff, err := s.capture(ctx, "git", "-C", "edge.git", "log", "-1", "-p", "--unified=0", "--format=%s", "edge", "--", "haproxy.cfg", "maps")
	if err != nil {
		return err
	}
	s.say("   $ git log -1 -p haproxy.cfg maps")
	s.indent(changedLines(diff))
	return nil
}

// changedLines keeps the subject, the files and the lines that differ.
func changedLines(diff string) string {
	var kept []string
	for i, line := range strings.Split(diff, "\n") {
		header := strings.HasPrefix(line, "---") || strings.HasPrefix(line, "index ") ||
			strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "@@")
		if i == 0 || (!header && line != "") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func (s *story) replaceEndpoint(ctx context.Context) error {
	if err := s.settled(ctx); err != nil { // a master that reloads cannot be asked
		return err
	}
	before, err := s.workers(ctx)
	if err != nil {
		return err
	}
	commits, err := s.capture(ctx, "git", "-C", "edge.git", "rev-list", "--count", "edge")
	if err != nil {
		return err
	}
	s.say("   $ sed -i s/127.0.10.11/127.0.10.13/ manifests/services.yaml")
	if err := s.edit("manifests/services.yaml", "127.0.10.11", "127.0.10.13"); err != nil {
		return err
	}
	if err := s.servesPod(ctx, "web-3", "web-1"); err != nil {
		return err
	}
	after, err := s.workers(ctx)
	if err != nil {
		return err
	}
	still, err := s.capture(ctx, "git", "-C", "edge.git", "rev-list", "--count", "edge")
	if err != nil {
		return err
	}
	if !slices.Equal(before, after) || commits != still {
		return fmt.Errorf("workers were %v and are %v, commits were %s and are %s", before, after, commits, still)
	}
	s.got("http://shop.example.com:18080/", "web-2 or web-3")
	s.say("   worker processes before and after: the same, no reload; commits before and after: the same")
	return nil
}

func (s *story) leaveOut(ctx context.Context) error {
	s.say("   $ cp changes/mistake.yaml manifests/")
	if err := s.copyIn("changes/mistake.yaml", "manifests/mistake.yaml"); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://journal.example.com:18080/", "blog-1"); err != nil {
		return err
	}
	s.got("http://journal.example.com:18080/", "blog-1")
	if err := s.settled(ctx); err != nil {
		return err
	}
	report, err := s.capture(ctx, s.compiler, "render", "-f", "manifests", "--config", "config.yaml",
		"--templates", "templates", "--haproxy", s.haproxy, "-o", "rendered")
	if err == nil {
		return errors.New("compiler render accepted a path with a blank")
	}
	s.say("   $ compiler render -f manifests -o rendered    # what CI would have said before the merge")
	s.indent(report)
	return nil
}

func (s *story) failOnCanary(ctx context.Context) error {
	taken, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("%s:%d", instanceAddress(1), partnerPort))
	if err != nil {
		return err
	}
	defer taken.Close()
	if err := s.settled(ctx); err != nil {
		return err
	}
	before, err := s.workers(ctx)
	if err != nil {
		return err
	}
	s.say("   (port %d of %s is taken by another process)", partnerPort, instanceAddress(1))
	s.say("   $ cp changes/templates/haproxy/90-partner.cfg templates/haproxy/")
	if err := s.copyIn("changes/templates/haproxy/90-partner.cfg", "templates/haproxy/90-partner.cfg"); err != nil {
		return err
	}
	if err := errors.Join(s.rejected(ctx), s.settled(ctx)); err != nil {
		return err
	}
	after, err := s.workers(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(before, after) {
		return fmt.Errorf("workers were %v and are %v: a healthy one was replaced", before, after)
	}
	if err := s.showStatus(ctx); err != nil {
		return err
	}
	s.say("   every worker process is still the one that ran before")
	return everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "sale-1")
}

func (s *story) pin(ctx context.Context) error {
	if err := s.show(ctx, "pusher pin r1 --reason 'the sale is off'", s.pusher, "pin", "r1", "--reason", "the sale is off", "--store", s.storeURL()); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "web-2", "web-3"); err != nil {
		return err
	}
	s.got("http://shop.example.com:18080/sale/shoes", "web-2 or web-3: yesterday's routes, today's pods")
	if err := s.settled(ctx); err != nil { // or unpinning undoes a rollout, and begins none
		return err
	}
	if err := s.show(ctx, "pusher unpin", s.pusher, "unpin", "--store", s.storeURL()); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "sale-1"); err != nil {
		return err
	}
	s.got("http://shop.example.com:18080/sale/shoes", "sale-1")
	if err := s.settled(ctx); err != nil {
		return err
	}
	if err := s.show(ctx, "pusher history", s.pusher, "history", "--store", s.storeURL(), "--state", "pusher.json"); err != nil {
		return err
	}
	return s.show(ctx, "git log --oneline", "git", "-C", "edge.git", "log", "--oneline", "--no-decorate", "edge")
}

// showStatus prints what the pusher says once it has nothing left to do.
func (s *story) showStatus(ctx context.Context) error {
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.show(ctx, "pusher status", s.pusher, "status", "--state", "pusher.json")
}
