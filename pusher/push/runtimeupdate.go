package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// ErrNeedsReload is the error if no change at run time can bring the worker to what was bound. The
// worker may already be changed in part.
var ErrNeedsReload = errors.New("it takes a reload")

// ApplyAtRuntime makes the worker run what was bound without a reload. The snapshot that the worker
// runs has to allow that. The file on disk is written first, so that any reload runs the same.
// Afterwards [Instance.RuntimeInfo] reports what was bound as the worker's node. have is what is
// known about the worker. ApplyAtRuntime does not change certificates; [Instance.Update] does.
//
// If maps get new entries, as for a new host, and no entry gets another value, the worker gets the new
// ones before the file is written. So a new host does not wait until HAProxy has checked the file, which
// takes half a second for 1,000 Ingresses with their certificates. If the file cannot be written, the
// entries are removed again.
func (i Instance) ApplyAtRuntime(ctx context.Context, want, running bind.Bound, have Running, known CertificateHashes) (Done, error) {
	if running.Shape != want.Shape {
		c := bind.Classify(running, want)
		return Done{}, fmt.Errorf("%w: %s:%d", ErrNeedsReload, c.File, c.Line)
	}
	if err := checkText(want.Config); err != nil {
		return Done{}, err
	}
	s, err := i.look(ctx)
	if err != nil {
		return Done{}, err
	}
	if !bind.SameNode(s.info.Node, running.Node) {
		return Done{}, fmt.Errorf("%w: %s", ErrElsewhere, s.info.Node)
	}
	if s.foreign != "" {
		return Done{}, fmt.Errorf("%w: %w: %s", ErrNeedsReload, ErrForeign, s.foreign)
	}
	sameMaps := have.Maps != "" && have.Maps == running.Entries && have.Info.PID == s.info.PID
	if have, err = i.before(ctx, want, running, have, s.info); err != nil {
		return Done{}, err
	}
	maps := newMapUpdate(runtime{i}, want.Maps, running.Maps, sameMaps)
	began, err := maps.addFirst(ctx)
	if err = asVain(err); err == nil {
		have.Disk, err = i.write(ctx, want, running, s, known)
	}
	if err != nil {
		if began { // if this fails, the next update of the worker removes the entries
			_, _ = runtime{i}.setMaps(ctx, running.Maps)
		}
		return Done{}, err
	}
	have.Written = want.Servers
	done, err := i.change(ctx, want, maps, have)
	if err != nil && !errors.Is(err, ErrElsewhere) {
		// Restore the text that names what the worker runs. If that fails too, the next push waits
		// for a reload that nobody asked for, and then asks for one.
		_, _ = i.post(ctx, running.Config, nil)
	}
	return done, err
}

// write writes the files and then haproxy.cfg, without a reload.
func (i Instance) write(ctx context.Context, want, running bind.Bound, s sight, known CertificateHashes) (Digest, error) {
	if err := i.upload(ctx, want.Files, known, keepsFiles); err != nil {
		return Digest{}, err
	}
	if s.disk.holds(want) && s.disk.version == s.memory {
		return digestOf(s.raw.Config), nil // an earlier try has written it
	}
	disk, err := i.post(ctx, want.Config, nil)
	if errors.Is(err, dataplane.ErrValidation) {
		i.dropTransactions(ctx)
		p := attempt{Instance: i, want: want, good: &running}
		return disk, p.refused(ctx, s, err)
	}
	return disk, err
}

// before returns what the worker has, including its servers. If it has to read the servers, it
// finds their weights only in the file on disk. An earlier try may have been interrupted after it
// wrote that file. So the weights that change count as unknown, and are set in any case.
func (i Instance) before(ctx context.Context, want, running bind.Bound, have Running, info dataplane.RuntimeInfo) (Running, error) {
	known := have.Servers != nil && have.Info.PID == info.PID && aligned(have.Servers, want.Servers)
	first := have.Info.PID == 0
	have.Info, have.Lost = info, 0
	if known {
		return have, nil
	}
	have, err := i.readAll(ctx, Wanted{Node: running.Node, Servers: running.Servers}, have)
	if err != nil {
		return have, err
	}
	for n, s := range want.Servers {
		if s.Weight != running.Servers[n].Weight {
			have.Servers[n].Weight = unknownWeight
		}
	}
	if first {
		have = have.afterAnother(want.Servers)
	}
	return have, nil
}

// unknownWeight is a weight that no server can have.
const unknownWeight = -1

// change changes the maps and servers of the worker. It returns an error if the worker is another
// process afterwards.
func (i Instance) change(ctx context.Context, want bind.Bound, maps *mapUpdate, have Running) (Done, error) {
	err := maps.set(ctx)
	lost := maps.lost
	if err != nil {
		return Done{Lost: lost}, asVain(err)
	}
	before := have.Info
	whole := func() (bind.Bound, error) { return want, nil }
	have.round = nil // of what the worker ran before
	for more := true; more; more = have.Unfinished {
		have.Unfinished = false
		if have, err = i.setServers(ctx, Wanted{Node: want.Node, Servers: want.Servers, Bind: whole}, have); err != nil {
			return Done{Lost: lost, Running: have}, err
		}
	}
	info, err := i.WorkerInfo(ctx)
	if err != nil {
		return Done{Lost: lost}, err
	}
	if info.PID != before.PID || info.Node != before.Node {
		return Done{Lost: lost}, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	i.setOverride(info, want, maps.files())
	if info, err = i.WorkerInfo(ctx); err == nil && !bind.SameNode(info.Node, want.Node) {
		err = fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	have.Info, have.Maps, have.Persisted = info, want.Entries, true
	return Done{Info: info, Disk: have.Disk, Lost: lost, Running: have}, err
}

// asVain marks an error as one that needs a reload, if another try to change maps would fail the
// same way.
func asVain(err error) error {
	for _, class := range []error{errMaps, dataplane.ErrNotFound, dataplane.ErrRejected, dataplane.ErrUnsupported} {
		if errors.Is(err, class) {
			return fmt.Errorf("%w: %w", ErrNeedsReload, err)
		}
	}
	return err
}

// DropDynamicServers deletes the dynamic servers that the worker no longer needs. A server that
// still has connections gets no new ones, and is left for the next call.
func (i Instance) DropDynamicServers(ctx context.Context, have Running) (Running, error) {
	var failed []error
	for _, d := range have.Leftovers() {
		err := i.API.DeleteServer(ctx, d.Backend, d.Name)
		switch {
		case err == nil, errors.Is(err, dataplane.ErrNotFound):
			have.Dynamic = slices.DeleteFunc(slices.Clone(have.Dynamic), d.same)
		case errors.Is(err, dataplane.ErrUnavailable):
			d.State = bind.SlotSpare
			have = have.withDynamic(d)
		default:
			failed = append(failed, err)
		}
	}
	return have, errors.Join(failed...)
}
