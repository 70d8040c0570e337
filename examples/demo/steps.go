package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func (s *story) startFleet(context.Context) error {
	if err := errors.Join(s.startServices(), s.startInstances()); err != nil {
		return err
	}
	for i := 1; i <= instanceCount; i++ {
		s.say("   %s  http://%s:%d  https://%s:%d  Dataplane API http://%s:%d",
			instanceName(i), instanceAddress(i), httpPort, instanceAddress(i), httpsPort, instanceAddress(i), apiPort)
	}
	return nil
}

func (s *story) compile(ctx context.Context) error {
	s.say("   $ compiler run -f manifests --config config.yaml --templates templates --store git+file://$PWD/edge.git?branch=edge &")
	if err := s.copyIn("config.yaml", "config.yaml"); err != nil {
		return err
	}
	err := s.start("compiler", s.compiler, "run", "-f", "manifests", "--config", "config.yaml",
		"--templates", "templates", "--store", s.storeURL(), "--haproxy", s.haproxy)
	if err != nil {
		return err
	}
	if err := s.published(ctx, 1); err != nil {
		return err
	}
	return s.showLog(1)
}

// published waits until the branch holds a number of snapshots.
func (s *story) published(ctx context.Context, want int) error {
	return eventually(ctx, func() error {
		count, err := s.capture("git", "-C", "edge.git", "rev-list", "--count", "edge")
		if err != nil {
			return err
		}
		if strings.TrimSpace(count) != fmt.Sprint(want) {
			return fmt.Errorf("%s snapshots in git, not %d", strings.TrimSpace(count), want)
		}
		return nil
	})
}

// showLog prints the subjects of the newest commits.
func (s *story) showLog(count int) error {
	return s.show(fmt.Sprintf("git log -%d --format=%%s", count),
		"git", "-C", "edge.git", "log", fmt.Sprintf("-%d", count), "--format=%s", "edge")
}

func (s *story) push(ctx context.Context) error {
	s.say("   $ pusher run --store git+file://$PWD/edge.git?branch=edge --instances fleet.yaml --live manifests &")
	err := s.start("pusher", s.pusher, "run", "--store", s.storeURL(), "--instances", "fleet.yaml",
		"--live", "manifests", "--state", "pusher.json", "--poll-interval", "250ms")
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
	diff, err := s.capture("git", "-C", "edge.git", "log", "-1", "-p", "--unified=0", "--format=%s", "edge", "--", "haproxy.cfg", "maps")
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
	before, err := s.workers(ctx)
	if err != nil {
		return err
	}
	commits, err := s.capture("git", "-C", "edge.git", "rev-list", "--count", "edge")
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
	still, err := s.capture("git", "-C", "edge.git", "rev-list", "--count", "edge")
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

// servesPod waits until every instance sends requests for the shop to the pod
// that came, and none to the one that left.
func (s *story) servesPod(ctx context.Context, came, left string) error {
	return eventually(ctx, func() error {
		for i := 1; i <= instanceCount; i++ {
			seen := map[string]bool{}
			for range 6 {
				body, _, err := answer(ctx, i, "http://shop.example.com:18080/")
				if err != nil {
					return err
				}
				seen[body] = true
			}
			if !seen[came] || seen[left] {
				return fmt.Errorf("%s answers from %v", instanceName(i), seen)
			}
		}
		return nil
	})
}

func (s *story) leaveOut(ctx context.Context) error {
	s.say("   $ cp changes/mistake.yaml manifests/")
	if err := s.copyIn("changes/mistake.yaml", "manifests/mistake.yaml"); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://journal.example.com:18080/", "web-2", "blog-1"); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://journal.example.com:18080/", "blog-1"); err != nil {
		return err
	}
	s.got("http://journal.example.com:18080/", "blog-1")
	report, err := s.capture(s.compiler, "render", "-f", "manifests", "--config", "config.yaml",
		"--templates", "templates", "--haproxy", s.haproxy, "-o", "rendered")
	if err == nil {
		return errors.New("compiler render accepted a path with a blank")
	}
	s.say("   $ compiler render -f manifests -o rendered    # what CI would have said before the merge")
	s.indent(report)
	return nil
}

func (s *story) failOnCanary(ctx context.Context) error {
	taken, err := net.Listen("tcp", fmt.Sprintf("%s:%d", instanceAddress(1), partnerPort))
	if err != nil {
		return err
	}
	defer taken.Close()
	before, err := s.workers(ctx)
	if err != nil {
		return err
	}
	s.say("   (port %d of %s is taken by another process)", partnerPort, instanceAddress(1))
	s.say("   $ cp changes/templates/haproxy/90-partner.cfg templates/haproxy/")
	if err := s.copyIn("changes/templates/haproxy/90-partner.cfg", "templates/haproxy/90-partner.cfg"); err != nil {
		return err
	}
	if err := s.rejected(ctx); err != nil {
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
	if err := s.show("pusher pin r1 --reason 'the sale is off'", s.pusher, "pin", "r1", "--reason", "the sale is off", "--store", s.storeURL()); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "web-2", "web-3"); err != nil {
		return err
	}
	s.got("http://shop.example.com:18080/sale/shoes", "web-2 or web-3: yesterday's routes, today's pods")
	if err := s.show("pusher unpin", s.pusher, "unpin", "--store", s.storeURL()); err != nil {
		return err
	}
	if err := everywhere(ctx, "http://shop.example.com:18080/sale/shoes", "sale-1"); err != nil {
		return err
	}
	s.got("http://shop.example.com:18080/sale/shoes", "sale-1")
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.show("pusher history", s.pusher, "history", "--store", s.storeURL(), "--state", "pusher.json")
}

// workers returns the process ids of the running workers, as each instance's
// Dataplane API reports them.
func (s *story) workers(ctx context.Context) ([]int, error) {
	var pids []int
	for i, instance := range s.instances {
		client, err := dataplane.New(dataplane.Options{URL: instance.URL(), Username: apiUser, Password: apiPassword})
		if err != nil {
			return nil, err
		}
		info, err := client.RuntimeInfo(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", instanceName(i+1), err)
		}
		pids = append(pids, info.PID)
	}
	return pids, nil
}

// rejected waits until the channel rejects the newest snapshot.
func (s *story) rejected(ctx context.Context) error {
	return eventually(ctx, func() error {
		channel, err := s.capture("git", "-C", "edge.git", "show", "edge-channel:channel.yaml")
		if err != nil {
			return err
		}
		if !strings.Contains(channel, "rejected:") {
			return errors.New("nothing is rejected yet")
		}
		return nil
	})
}

// settled waits until the pusher has nothing left to do.
func (s *story) settled(ctx context.Context) error {
	return eventually(ctx, func() error {
		status, err := s.capture(s.pusher, "status", "--state", "pusher.json", "-o", "json")
		if err != nil {
			return err
		}
		var parsed struct {
			Rollout *struct{ Phase string } `json:"rollout"`
		}
		if err := json.Unmarshal([]byte(status), &parsed); err != nil {
			return err
		}
		if parsed.Rollout != nil {
			return fmt.Errorf("the rollout is %s", parsed.Rollout.Phase)
		}
		return nil
	})
}

// showStatus prints what the pusher says once it has nothing left to do.
func (s *story) showStatus(ctx context.Context) error {
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.show("pusher status", s.pusher, "status", "--state", "pusher.json")
}
