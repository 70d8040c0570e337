package push

import (
	"context"
	"errors"
	"fmt"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// ErrDescriptors is the error of an instance whose HAProxy may not open as many files as a
// worker of the snapshot would need. Such a worker does not start, and neither does HAProxy
// when it is restarted. The instance is at fault, not what the snapshot says.
var ErrDescriptors = errors.New("too few file descriptors")

// checkDescriptors compares what a worker needs at least with what it may have, as far as
// that is known. It is told before anything is written.
func checkDescriptors(want, runs bind.Descriptors, p dataplane.Process) error {
	least := want.Least()
	if limit := want.HardLimit; limit > 0 && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and fd-hard-limit is %d; raise it, or have fewer spare slots or checks",
			ErrDescriptors, least, want, limit)
	}
	if limit, known := processLimit(runs, p); known && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and HAProxy may open %d; raise its limit of open files (LimitNOFILE= of systemd, --ulimit nofile of a container)",
			ErrDescriptors, least, want, limit)
	}
	return nil
}

// processLimit returns how many files the running worker may open. It tells how many it may
// come to use. Where its configuration leaves maxconn to HAProxy, that is as many as it may
// open, or fd-hard-limit; else it is what it needs, and nobody tells what it may.
func processLimit(runs bind.Descriptors, p dataplane.Process) (limit int, known bool) {
	limit = p.Sockets + 1 // HAProxy rounds down to pairs
	return limit, p.Sockets > 0 && runs.MaxConn == 0 && (runs.HardLimit == 0 || limit < runs.HardLimit)
}

// fits checks that the instance may run what is wanted, by what is told of the worker and
// of the configuration that it runs. Where the API cannot tell, HAProxy will.
func (p *attempt) fits(ctx context.Context, s sight) error {
	var process dataplane.Process
	var runs bind.Descriptors
	if s.disk.node == s.info.LoadedNode() { // else the text on disk is not the worker's
		var err error
		if process, err = p.API.Process(ctx); err != nil {
			process = dataplane.Process{}
		}
		runs = bind.CountDescriptors(s.raw.Config)
	}
	return checkDescriptors(bind.CountDescriptors(p.want.Config), runs, process)
}
