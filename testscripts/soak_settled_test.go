package testscripts

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// settled reports what is not as it should be. It asks the HAProxys themselves. The pusher must agree.
func (s *soak) settled() error {
	view, err := s.store.View(context.Background())
	if err != nil {
		return err
	}
	if err := s.published(view); err != nil {
		return err
	}
	status, err := pusher.ReadStatus(filepath.Join(s.w.dir, "pusher.json"))
	if err != nil {
		return err
	}
	want := channel.Want(view, time.Now())
	if want.Hold { // the pinned snapshot was rejected since, and what ran continues
		want.ID = status.Good
	}
	for _, i := range s.w.instances {
		if err := s.runs(i, want.ID); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	if !slices.Contains(s.ran, want.ID) {
		s.ran = append(s.ran, want.ID)
	}
	return agrees(status, want)
}

// published reports whether the newest snapshot has the present manifests.
func (s *soak) published(view channel.View) error {
	if len(view.IDs) == 0 {
		return fmt.Errorf("there is no snapshot")
	}
	newest, err := s.store.Get(context.Background(), view.Head())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(newest.Files, func(f snapshots.File) bool { return bytes.Contains(f.Content, []byte(versionHost(s.version))) }) {
		return fmt.Errorf("%s is not of version %d", view.Head(), s.version)
	}
	return nil
}

// runs reports whether an instance runs a snapshot, with today's servers and certificate.
func (s *soak) runs(i *instance, id snapshots.ID) error {
	info, err := i.Socket("show info")
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(info, "\nnode: ")
	node, _, _ := strings.Cut(after, "\n")
	if err := names(i, node, id); err != nil {
		return err
	}
	if err := s.routes(i, id); err != nil {
		return err
	}
	state, err := i.Socket("show servers state")
	if err != nil {
		return err
	}
	for service := range s.endpoints {
		if got, want := readyServers(state, "shop_"+service+"_"), s.addresses(service); !slices.Equal(got, want) {
			return fmt.Errorf("the servers of %s are %v, not %v", service, got, want)
		}
	}
	shown, err := s.w.handshake(i, "shop.example.com")
	if err == nil && !bytes.Equal(shown.Raw, s.w.certificates["shop/web-tls"].Raw) {
		err = fmt.Errorf("it shows the certificate with the serial number %s", shown.SerialNumber)
	}
	return err
}

// names reports whether the worker names a snapshot. A worker may also have loaded another one of the same
// shape while the file names this one. Then the entries of maps decide.
func names(i *instance, node string, id snapshots.ID) error {
	loaded, shape, err := bind.ParseNode(node)
	if err != nil || loaded.Short == id.Short {
		return err
	}
	config, err := i.Config()
	if err != nil {
		return err
	}
	if !strings.Contains(config, id.Short+"_"+shape) {
		return fmt.Errorf("it runs %q, not %s", node, id)
	}
	return nil
}

// routes reports whether the worker has a snapshot's map entries.
func (s *soak) routes(i *instance, id snapshots.ID) error {
	want, err := s.store.Get(context.Background(), id)
	if err != nil {
		return err
	}
	list, err := i.Socket("show map")
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		_, after, _ := strings.Cut(line, "(")
		path, _, ok := strings.Cut(after, ")")
		n := slices.IndexFunc(want.Files, func(f snapshots.File) bool {
			return ok && f.Path == "maps/"+bind.LogicalMap(filepath.Base(path))
		})
		if n < 0 {
			continue
		}
		entries, _ := bind.ParseMap(want.Files[n].Content)
		shown, err := i.Socket("show map " + path)
		if err != nil {
			return err
		}
		var has []bind.MapEntry
		for entry := range strings.Lines(shown) {
			if f := strings.Fields(entry); len(f) == 3 {
				has = append(has, bind.MapEntry{Key: f[1], Value: f[2]})
			}
		}
		byKey := func(a, b bind.MapEntry) int { return strings.Compare(a.Key, b.Key) }
		slices.SortFunc(entries, byKey)
		slices.SortFunc(has, byKey)
		if !slices.Equal(has, entries) {
			return fmt.Errorf("%s has %v, not %v", path, has, entries)
		}
	}
	return nil
}

// readyServers returns the addresses of the servers that take traffic, in backends with a prefix.
func readyServers(state, backend string) []string {
	var out []string
	for line := range strings.Lines(state) {
		f := strings.Fields(line)
		if len(f) < 19 || !strings.HasPrefix(f[1], backend) {
			continue
		}
		// The bit 4 only shows the configured state.
		if admin, err := strconv.Atoi(f[6]); err == nil && admin&^4 == 0 && f[5] == "2" {
			out = append(out, f[4])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// agrees reports whether the pusher's status agrees.
func agrees(status report.Status, want channel.Decision) error {
	switch {
	case status.Channel.Hold != want.Hold || (!want.Hold && status.Channel.Wanted != want.ID):
		return fmt.Errorf("the pusher wants %s, hold %v, not %s, hold %v", status.Channel.Wanted, status.Channel.Hold, want.ID, want.Hold)
	case status.Rollout != nil:
		return fmt.Errorf("the rollout of %s is %s", status.Rollout.Target, status.Rollout.Phase)
	case status.InSync() != len(status.Instances) || len(status.Instances) != soakInstances:
		return fmt.Errorf("not all are in sync: %+v; waits %+v", status.Instances, status.Waits)
	}
	return nil
}
