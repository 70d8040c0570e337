package push

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestCheckDescriptors(t *testing.T) {
	t.Parallel()
	want := bind.Descriptors{Checks: 30000, Listeners: 3} // needs 30203
	hard := want
	hard.HardLimit = 20000
	shipped := bind.Descriptors{HardLimit: 100000}
	for name, test := range map[string]struct {
		want, runs bind.Descriptors
		process    dataplane.Process
		says       string // "" if it fits
	}{
		"it fits":            {want, shipped, dataplane.Process{Sockets: 99999}, ""},
		"it does not":        {want, shipped, dataplane.Process{Sockets: 19999}, "a worker needs at least 30203 (30000 for servers that may be checked, 3 for listeners, 2 for each of 100 connections), and HAProxy may open 20000; raise"},
		"it just fits":       {want, shipped, dataplane.Process{Sockets: 30202}, ""},
		"one is missing":     {want, shipped, dataplane.Process{Sockets: 30201}, "may open 30202"},
		"before the first":   {want, bind.Descriptors{}, dataplane.Process{Sockets: 19999}, "may open 20000"},
		"nothing is told":    {want, shipped, dataplane.Process{}, ""},
		"its own limit":      {hard, shipped, dataplane.Process{Sockets: 99999}, "fd-hard-limit is 20000"},
		"maxconn hides it":   {want, bind.Descriptors{MaxConn: 200}, dataplane.Process{Sockets: 429}, ""},
		"a hard limit does":  {want, bind.Descriptors{HardLimit: 1000}, dataplane.Process{Sockets: 999}, ""},
		"maxconn is counted": {bind.Descriptors{MaxConn: 20000}, shipped, dataplane.Process{Sockets: 19999}, "at least 40000"},
	} {
		err := checkDescriptors(test.want, test.runs, test.process)
		switch {
		case test.says == "" && err != nil, test.says != "" && err == nil:
			t.Errorf("%s: %v", name, err)
		case err != nil && (!errors.Is(err, ErrDescriptors) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An instance that may not open enough files is told of before anything is changed there,
// and the snapshot is not to blame.
func TestPushSaysThatDescriptorsAreTooFew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.process = dataplane.Process{Sockets: 599}
	want := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	var many strings.Builder
	for n := range 600 {
		fmt.Fprintf(&many, "    server x%d 10.0.0.1:80 check\n", n)
	}
	want.Config = append(want.Config, many.String()...)
	f.calls = nil
	_, err := Instance{API: f, ReloadTimeout: time.Second}.Push(t.Context(), want, nil, Known{})
	if !errors.Is(err, ErrDescriptors) || errors.Is(err, ErrRefused) || len(f.calls) > 0 {
		t.Errorf("error %v, calls %q", err, f.calls)
	}
}
