package testscripts

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

func downInstance(w *world, _ *testscript.TestScript, args []string) error {
	i, err := w.one(args)
	if err != nil {
		return err
	}
	i.StopAPI()
	i.KillHAProxy()
	return nil
}

func upInstance(w *world, _ *testscript.TestScript, args []string) error {
	i, err := w.one(args)
	if err != nil {
		return err
	}
	if err := i.StartHAProxy(); err != nil {
		return err
	}
	return i.StartAPI()
}

// faultKinds are the failures, by name; some have an argument.
var faultKinds = map[string]func(argument string) (dataplanetest.Fault, error){
	"answer": func(a string) (dataplanetest.Fault, error) {
		status, err := strconv.Atoi(a)
		return dataplanetest.Answer(status), err
	},
	"slow": func(a string) (dataplanetest.Fault, error) {
		d, err := time.ParseDuration(a)
		return dataplanetest.Slow(d), err
	},
	"fail-reload": func(a string) (dataplanetest.Fault, error) { return dataplanetest.FailReload(a), nil },
	"hang":        func(string) (dataplanetest.Fault, error) { return dataplanetest.Hang(), nil },
	"cut-before":  func(string) (dataplanetest.Fault, error) { return dataplanetest.CutBefore(), nil },
	"cut-after":   func(string) (dataplanetest.Fault, error) { return dataplanetest.CutAfter(), nil },
	"disk-full":   func(string) (dataplanetest.Fault, error) { return dataplanetest.DiskFull(), nil },
}

func injectFault(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) < 2 || len(args) == 3 || len(args) > 5 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	if args[1] == "none" {
		i.ClearFaults()
		return nil
	}
	kind, argument, _ := strings.Cut(args[1], "=")
	newFault, ok := faultKinds[kind]
	if !ok {
		return fmt.Errorf("%w: there is no fault %q", errUsage, kind)
	}
	f, err := newFault(argument)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if len(args) >= 4 {
		f = f.On(args[2], args[3])
	}
	if len(args) == 5 {
		times, err := strconv.Atoi(args[4])
		if err != nil {
			return errUsage
		}
		f = f.Times(times)
	}
	i.Inject(f)
	return nil
}

func occupyPort(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	i, err := w.instance(args[0])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(i.ip, args[1]))
	if err != nil {
		return err
	}
	w.taken = append(w.taken, listener)
	return nil
}

func releasePorts(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) > 0 {
		return errUsage
	}
	for _, listener := range w.taken {
		listener.Close()
	}
	w.taken = nil
	return nil
}
