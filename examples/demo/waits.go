package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

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
