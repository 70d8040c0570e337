package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// startAttempts is how often a configuration is tried: what is in its way may leave.
	startAttempts = 3
	// startPause is how long to wait before the next attempt.
	startPause = time.Second
	// killLimit is how long a HAProxy that did not get up may take to end.
	killLimit = 5 * time.Second
)

// stateVariable is what the first configuration answers on /ready, instead of that there is
// no snapshot yet.
const stateVariable = "HAPSNAP_STATE"

// wentBack is what /ready says of an instance whose configuration could not be started.
const wentBack = "the last configuration could not be started, see the log of bootstrap"

// endedSoon is what it says where HAProxy started with it, and ended within seconds.
const endedSoon = "HAProxy ended soon after each start with the last configuration, see the log of bootstrap"

// startHAProxy starts HAProxy with the configuration on disk, or with the first one if that
// cannot be started, or ended soon after each of the last starts. It returns when a worker serves. It returns no HAProxy, but an exit
// code, if it was told to end first or neither can be started.
func (s Settings) startHAProxy(got chan os.Signal) (*child, int, error) {
	if s.countStart() > startAttempts {
		fmt.Fprintf(s.stderr, "bootstrap haproxy: HAProxy ended soon after each start with %s: starts=%d\n", s.config(), startAttempts)
		return s.startFirst(got, endedSoon)
	}
	deadline := time.Now().Add(s.Start)
	for attempt := 1; ; attempt++ {
		haproxy, fault, code, err := s.attempt(got, time.Until(deadline))
		if err != nil || fault == "" {
			return haproxy, code, err
		}
		fmt.Fprintf(s.stderr, "bootstrap haproxy: %s cannot be started: attempt=%d fault=%q\n", s.config(), attempt, fault)
		if attempt >= startAttempts || time.Now().After(deadline) {
			if s.isFirst() {
				return nil, max(code, exitFailure), errors.New("the first configuration cannot be started")
			}
			return s.startFirst(got, wentBack)
		}
		select {
		case <-time.After(startPause):
		case <-got:
			return nil, 0, nil
		}
	}
}

// startFirst puts the first configuration into the place of the one on disk, and starts
// HAProxy with it. Why is what /ready says.
func (s Settings) startFirst(got chan os.Signal, why string) (*child, int, error) {
	s.forgetStarts()
	if err := s.goBack(); err != nil {
		return nil, exitFailure, fmt.Errorf("go back to the first configuration: %w", err)
	}
	fmt.Fprintf(s.stderr, "bootstrap haproxy: HAProxy starts with the first configuration, which serves nobody, until the pusher brings another one; the one before is kept as %s\n", s.refused())
	haproxy, fault, code, err := s.attempt(got, s.Start, stateVariable+"="+why)
	if err == nil && fault != "" {
		return nil, max(code, exitFailure), fmt.Errorf("the first configuration cannot be started: %s", fault)
	}
	return haproxy, code, err
}

// attempt starts HAProxy, and waits until a worker of it serves. One that is told to end
// when it may serve already is returned as well, with the signal still to come. Otherwise
// HAProxy has ended, and fault says why if that was not for a signal.
func (s Settings) attempt(got chan os.Signal, limit time.Duration, env ...string) (haproxy *child, fault string, code int, err error) {
	if err := os.Remove(s.MasterSocket); err != nil && !os.IsNotExist(err) {
		return nil, "", exitFailure, err
	}
	if haproxy, err = s.startWith(env, s.HAProxy, "-W", "-db", "-S", s.MasterSocket+",mode,600,level,admin", "-f", s.config()); err != nil {
		return nil, "", exitFailure, err
	}
	over := time.After(limit)
	tick := time.NewTicker(socketLook)
	defer tick.Stop()
	for {
		select {
		case code := <-haproxy.ended:
			if code == 0 {
				return nil, "", 0, nil
			}
			return nil, fmt.Sprintf("HAProxy ended with %d", code), code, nil
		case <-over:
			return nil, fmt.Sprintf("no worker serves after %v", limit.Round(time.Second)), haproxy.end(), nil
		case signal := <-got:
			if haproxy.reloads(signal) {
				continue
			}
			if _, err := os.Stat(s.MasterSocket); err == nil {
				select {
				case got <- signal:
				default: // others wait there
				}
				return haproxy, "", 0, nil
			}
			return nil, "", haproxy.end(), nil
		case <-tick.C:
			frontends, err := master(s.MasterSocket).frontends()
			switch {
			case err != nil: // not yet
			case len(frontends) == 0: // an empty file is one that HAProxy starts with
				return nil, "it has no frontend", haproxy.end(), nil
			default:
				return haproxy, "", 0, nil
			}
		}
	}
}

// end ends a HAProxy that serves nobody, and returns its exit code.
func (c *child) end() int {
	c.signal(syscall.SIGTERM)
	select {
	case code := <-c.ended:
		return code
	case <-time.After(killLimit):
		c.signal(syscall.SIGKILL)
		return <-c.ended
	}
}

func (s Settings) first() string { return filepath.Join(s.FilesDir, "bootstrap.cfg") }

// refused is where a configuration is kept that HAProxy went back from, for people.
func (s Settings) refused() string { return s.config() + ".refused" }

// starts is where the starts are counted after which HAProxy was not proven to run.
func (s Settings) starts() string { return filepath.Join(s.ConfigDir, "starts") }

// countStart counts this start, and returns how many there were in a row that nothing is
// known of. The first configuration has none to go back to. Where the disk is full nothing
// is counted.
func (s Settings) countStart() int {
	if s.isFirst() {
		s.forgetStarts()
		return 0
	}
	text, _ := os.ReadFile(s.starts())
	n, _ := strconv.Atoi(string(text)) // 0 where there is none, or half of one
	_ = os.WriteFile(s.starts(), strconv.AppendInt(nil, int64(n+1), 10), 0o600)
	return n + 1
}

// forgetStarts begins the count anew: HAProxy was proven to run, or was told to end.
func (s Settings) forgetStarts() { _ = os.Remove(s.starts()) }

// reserve is a copy of the first configuration on the same disk, for when that is full.
func (s Settings) reserve() string { return filepath.Join(s.ConfigDir, "first.cfg") }

// isFirst reports whether the configuration on disk is the first one.
func (s Settings) isFirst() bool {
	text, err := os.ReadFile(s.config())
	first, also := os.ReadFile(s.first())
	return err == nil && also == nil && bytes.Equal(text, first)
}

// goBack puts the first configuration into the place of one that cannot be started. On a
// disk that is full that takes the reserve, or the room of what is refused.
func (s Settings) goBack() error {
	text, err := os.ReadFile(s.first())
	if err != nil {
		return err
	}
	if err := os.Rename(s.config(), s.refused()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = replaceFile(s.config(), text, 0o600)
	if err == nil || os.Rename(s.reserve(), s.config()) == nil {
		return nil
	}
	_ = os.Remove(s.refused())
	return replaceFile(s.config(), text, 0o600)
}

// keepReserve makes the reserve, if there is room for it.
func (s Settings) keepReserve() {
	text, err := os.ReadFile(s.first())
	if have, absent := os.ReadFile(s.reserve()); err != nil || absent == nil && bytes.Equal(have, text) {
		return
	}
	_ = replaceFile(s.reserve(), text, 0o600)
}
