package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// story tells the main job step by step. What it prints stands in docs/start/demo.md,
// so nothing that differs from run to run is printed without need.
type story struct {
	*world
	out  io.Writer
	step int
}

// tell runs the steps in order and stops at the first whose result is not as told.
func (s *story) tell(ctx context.Context) error {
	steps := []struct {
		title string
		run   func(context.Context) error
	}{
		{"Three HAProxy instances, each behind its Dataplane API, and a few services", s.startFleet},
		{"The compiler turns the manifests into a validated snapshot in git", s.compile},
		{"The pusher rolls it out, one instance first", s.push},
		{"Requests reach the right service, over HTTP and HTTPS", s.request},
		{"A route is added to the manifests, and is live", s.addRoute},
		{"A pod is replaced: new address, same worker process, nothing in git", s.replaceEndpoint},
		{"A bad object is left out and reported; the good one beside it goes live", s.leaveOut},
		{"A change that passes haproxy -c fails on the first instance, and is rolled back there", s.failOnCanary},
		{"Rolling back by hand is pinning, and unpinning rolls forward", s.pin},
	}
	for _, step := range steps {
		s.step++
		s.say("\n%d. %s", s.step, step.title)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("step %d: %w", s.step, err)
		}
	}
	s.say("\nThat was hapsnap: every configuration that ran is in git, and none broke the fleet.")
	return nil
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// got prints which service answered a request.
func (s *story) got(url, service string) { s.say("   GET %-45s %s", url, service) }

// indent prints text below the current step. The demo's directory is shown as
// the reader's own would be.
func (s *story) indent(text string) {
	text = strings.ReplaceAll(text, s.dir, "$PWD")
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		s.say("   %s", strings.TrimRight(line, "\n"))
	}
}

// show runs a command as the reader would type it, and prints both.
func (s *story) show(ctx context.Context, shown, path string, args ...string) error {
	s.say("   $ %s", shown)
	output, err := s.capture(ctx, path, args...)
	s.indent(output)
	return err
}

// capture runs a command in the world's directory and returns what it prints.
func (s *story) capture(ctx context.Context, path string, args ...string) (string, error) {
	cmd := command(ctx, path, args...)
	cmd.Dir = s.dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%s %s: %w\n%s", path, strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// leaveRunning says what the reader can try while everything runs.
func (s *story) leaveRunning() {
	s.say("\nEverything is left running below %s. Look at http://%s/ in a browser, or try:", s.dir, pageAddress)
	for i := 1; i <= instanceCount; i++ {
		s.say("   curl -H 'Host: shop.example.com' http://%s:%d/cart", instanceAddress(i), httpPort)
	}
	s.say("   curl -k --resolve shop.example.com:%d:%s https://shop.example.com:%d/", httpsPort, instanceAddress(1), httpsPort)
	s.say("   curl -u %s:%s http://%s:%d/v3/services/haproxy/runtime/info", apiUser, apiPassword, instanceAddress(1), apiPort)
	s.say("   git -C %s log -p edge", s.path("edge.git"))
	s.say("   %s status --state %s", s.pusher, s.path("pusher.json"))
	s.say("   $EDITOR %s", s.path("manifests/ingress.yaml"))
	s.say("Interrupt (Ctrl-C) to end it and remove everything.")
}

// published waits until the branch holds a number of snapshots.
func (s *story) published(ctx context.Context, want int) error {
	return eventually(ctx, func() error {
		count, err := s.capture(ctx, "git", "-C", "edge.git", "rev-list", "--count", "edge")
		if err != nil {
			return err
		}
		if strings.TrimSpace(count) != fmt.Sprint(want) {
			return fmt.Errorf("%s snapshots in git, not %d", strings.TrimSpace(count), want)
		}
		return nil
	})
}

// servesPod waits until every instance sends requests for the shop to the new pod, and none to the old one.
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
		channel, err := s.capture(ctx, "git", "-C", "edge.git", "show", "edge-channel:channel.yaml")
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
		status, err := s.capture(ctx, s.pusher, "status", "--state", "pusher.json", "-o", "json")
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

// answer asks one instance for a URL, whatever address its name has, and returns the body and the status.
func answer(ctx context.Context, instance int, url string) (string, int, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(instanceAddress(instance), port))
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the demo's certificate is self-signed
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), response.StatusCode, err
}

// verifyTLS checks that an instance proves to be the shop with the certificate of the Secret, and has another
// certificate for other hosts.
func verifyTLS(ctx context.Context, instance int, pool *x509.CertPool) error {
	address := fmt.Sprintf("%s:%d", instanceAddress(instance), httpsPort)
	for _, host := range []struct {
		name   string
		proven bool
	}{{tlsHost, true}, {"blog.example.com", false}} {
		dialer := tls.Dialer{Config: &tls.Config{ServerName: host.name, RootCAs: pool}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
		}
		if proven := err == nil; proven != host.proven {
			return fmt.Errorf("TLS to %s on %s: proven %t, want %t: %w", host.name, instanceName(instance), proven, host.proven, err)
		}
	}
	return nil
}

// expect checks that an instance answers a URL with one of the given bodies.
func expect(ctx context.Context, instance int, url string, bodies ...string) error {
	body, status, err := answer(ctx, instance, url)
	if err != nil {
		return fmt.Errorf("GET %s on %s: %w", url, instanceName(instance), err)
	}
	for _, want := range bodies {
		if body == want {
			return nil
		}
	}
	return fmt.Errorf("GET %s on %s: status %d, %q, want one of %q", url, instanceName(instance), status, body, bodies)
}

// everywhere waits until each instance answers a URL with one of the bodies.
func everywhere(ctx context.Context, url string, bodies ...string) error {
	return eventually(ctx, func() error {
		for i := 1; i <= instanceCount; i++ {
			if err := expect(ctx, i, url, bodies...); err != nil {
				return err
			}
		}
		return nil
	})
}

// pollInterval is the time between two checks of a condition.
const pollInterval = 50 * time.Millisecond

// eventually waits until check succeeds, and returns its last error if ctx
// ends first.
func eventually(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", err)
		case <-ticker.C:
		}
	}
}
