package push

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
)

// maxActions bounds how many actions travel with one post, in a header.
const maxActions = 256

// manyChanges is from where on one post, which costs as much as the whole
// configuration, is cheaper than a call for each server.
const manyChanges = 50

// Running is what is known of a worker.
type Running struct {
	// Servers are those it has, nil if that has to be asked.
	Servers []snapshots.BoundServer
	// Persisted is set when the file on disk says so too.
	Persisted bool
	// Certificates are those that it serves, by path.
	Certificates Known
	// Info is of the worker when it was last asked.
	Info dataplane.RuntimeInfo
	// Reloaded is set by an update that had to replace the worker, for the sake of
	// a certificate.
	Reloaded bool
	// ByHand are the servers that another hand took out of traffic.
	ByHand []Hand
	// Disk is what the file on disk was when it was last written, the zero value if
	// that is not known.
	Disk Digest
}

// Has reports whether the worker is known to have these servers, apart from those
// that another hand took out of traffic.
func (r Running) Has(want []snapshots.BoundServer) bool {
	wanted, _ := respect(want, r.ByHand)
	return r.Servers != nil && slices.Equal(r.Servers, wanted)
}

// Another returns what is known of the worker that took this one's place.
func (r Running) Another() Running { return Running{ByHand: r.ByHand, Disk: r.Disk} }

// Update makes the worker, which has to run the shape that was bound, have the
// servers and the certificates that were bound, without a reload where that can
// be. It returns what the worker has now, also with an error.
//
// Before version 3.4 the API changes addresses only along with the file on disk.
// From then on it does so at once, and [Instance.Persist] has to follow.
func (i Instance) Update(ctx context.Context, want snapshots.Bound, have Running) (Running, error) {
	info, err := i.API.RuntimeInfo(ctx)
	if err != nil {
		return have, err
	}
	if !snapshots.SameNode(info.Node, want.Node) {
		return have, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	if info.PID != have.Info.PID {
		have.Servers = nil
	}
	have.Info = info
	if have.Servers == nil {
		if have, err = i.readAll(ctx, want, have); err != nil {
			return have, err
		}
	}
	if have, err = i.setServers(ctx, want, have); err != nil {
		return have, err
	}
	return i.rotate(ctx, want, have)
}

// readAll asks for all servers of the worker. Their weights are those of the file;
// where it has none, there is none to set.
func (i Instance) readAll(ctx context.Context, want snapshots.Bound, have Running) (Running, error) {
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return have, err
	}
	disk := readText(raw.Config)
	servers := make([]snapshots.BoundServer, len(want.Servers))
	for n, s := range want.Servers {
		servers[n] = snapshots.BoundServer{Backend: s.Backend, Name: s.Name, Weight: s.Weight}
		if l := disk.servers[serverKey{s.Backend, s.Name}]; l.weight >= 0 && l.address.IsValid() {
			servers[n].Weight = l.weight
		}
	}
	all := make([]change, len(want.Servers))
	for n := range all {
		all[n].to = want.Servers[n]
	}
	if err := i.readBack(ctx, servers, backendsOf(all)); err != nil {
		return have, err
	}
	have.Servers, have.Persisted = servers, disk.holds(want) && disk.version == raw.Version
	return have, nil
}

// readBack brings the servers of the backends up to date with the worker.
func (i Instance) readBack(ctx context.Context, servers []snapshots.BoundServer, backends []string) error {
	found := make(map[serverKey]dataplane.Server)
	asked := make(map[string]bool, len(backends))
	for _, backend := range backends {
		list, err := i.API.Servers(ctx, backend)
		if err != nil {
			return err
		}
		asked[backend] = true
		for _, s := range list {
			found[serverKey{backend, s.Name}] = s
		}
	}
	for n, s := range servers {
		if !asked[s.Backend] {
			continue
		}
		f, ok := found[serverKey{s.Backend, s.Name}]
		if !ok {
			return fmt.Errorf("%w: it has no server %s/%s", ErrElsewhere, s.Backend, s.Name)
		}
		servers[n] = read(s, f)
	}
	return nil
}

func (i Instance) setServers(ctx context.Context, want snapshots.Bound, have Running) (Running, error) {
	var wanted []snapshots.BoundServer
	wanted, have.ByHand = respect(want.Servers, have.ByHand)
	list := changes(have.Servers, wanted)
	if len(list) == 0 {
		return have, nil
	}
	servers := slices.Clone(have.Servers)
	var err error
	if len(list) < manyChanges && !reweighs(list) && (!readdresses(list) || i.setsAddresses(ctx)) {
		have.Persisted = have.Persisted && !slices.ContainsFunc(list, change.onDisk)
		err = i.setDirectly(ctx, list)
	} else {
		have.Disk, err = i.setByPost(ctx, want.Config, list)
		have.Persisted = err == nil
	}
	// Whatever the answers were, the worker says what came of it.
	if readErr := i.readBack(ctx, servers, backendsOf(list)); readErr != nil {
		have.Servers = nil
		return have, errors.Join(err, readErr)
	}
	known := have.Servers
	have.Servers = servers
	if err != nil {
		return have, err
	}
	have.Servers = believed(servers, wanted)
	have.ByHand = notice(have.ByHand, known, have.Servers, list)
	wanted, have.ByHand = respect(want.Servers, have.ByHand)
	if left := changes(have.Servers, wanted); len(left) > 0 {
		return have, fmt.Errorf("server %s/%s is %s at %s:%d, not %s at %s:%d as it was set",
			left[0].to.Backend, left[0].to.Name, left[0].from.State, left[0].from.Address, left[0].from.Port,
			left[0].to.State, left[0].to.Address, left[0].to.Port)
	}
	return have, nil
}

// setsAddresses reports whether the API changes addresses in the worker; older
// ones answer the same call with 200 and leave the address as it is, so in doubt
// it is not made.
func (i Instance) setsAddresses(ctx context.Context) bool {
	info, err := i.API.Info(ctx)
	return err == nil && atLeast34(info.Version)
}

func atLeast34(version string) bool {
	parts := strings.SplitN(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > 3 || (major == 3 && minor >= 4))
}

// setDirectly changes one server after the other. A slot stops taking traffic
// before it loses its address.
func (i Instance) setDirectly(ctx context.Context, list []change) error {
	for _, c := range readyFirst(list) {
		state := dataplane.ServerChange{AdminState: string(c.to.State)}
		address := dataplane.ServerChange{Address: c.to.Address, Port: c.to.Port}
		var calls []dataplane.ServerChange
		switch {
		case !c.moves():
			calls = []dataplane.ServerChange{state}
		case c.to.State == snapshots.SlotReady:
			address.AdminState = state.AdminState
			calls = []dataplane.ServerChange{address}
		default:
			calls = []dataplane.ServerChange{state, address}
		}
		for _, call := range calls {
			if _, err := i.API.SetServer(ctx, c.to.Backend, c.to.Name, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// setByPost posts the text without a reload, with what to change in the worker.
func (i Instance) setByPost(ctx context.Context, config []byte, list []change) (disk Digest, err error) {
	all := actions(list)
	for len(all) > 0 {
		n := min(len(all), maxActions)
		if disk, err = i.post(ctx, config, all[:n]); err != nil {
			return Digest{}, err
		}
		all = all[n:]
	}
	return disk, nil
}

// Persist writes the text to disk, for a worker that runs it already, and returns
// what the file is now.
func (i Instance) Persist(ctx context.Context, want snapshots.Bound) (Digest, error) {
	info, err := i.API.RuntimeInfo(ctx)
	if err != nil {
		return Digest{}, err
	}
	if !snapshots.SameNode(info.Node, want.Node) {
		return Digest{}, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	return i.post(ctx, want.Config, nil)
}

// post writes the text without a reload; another try after a conflict is safe,
// for only the worker's own snapshot is ever posted so.
func (i Instance) post(ctx context.Context, config []byte, list []dataplane.RuntimeAction) (Digest, error) {
	var err error
	for range maxTries {
		var version int64
		if version, err = i.version(ctx); err != nil {
			return Digest{}, err
		}
		var posted dataplane.Posted
		posted, err = i.API.PostRaw(ctx, config, dataplane.PostOptions{Version: version, SkipReload: true, Actions: list})
		if err == nil {
			return digestOf(posted.Config), nil
		}
		if !errors.Is(err, dataplane.ErrConflict) {
			return Digest{}, err
		}
		i.tidy(ctx)
	}
	return Digest{}, err
}

// rotate replaces the certificates whose content changed. One that cannot be
// replaced does not keep the others from it.
func (i Instance) rotate(ctx context.Context, want snapshots.Bound, have Running) (Running, error) {
	have.Certificates = maps.Clone(have.Certificates)
	if have.Certificates == nil {
		have.Certificates = make(Known)
	}
	var failed []error
	for _, f := range want.Files {
		hash, known := have.Certificates[f.Path]
		if f.Kind != snapshots.CertificateFile || (known && hash == sum(f.Content)) {
			continue
		}
		if !known && i.serves(ctx, f) {
			have.Certificates.remember(f)
			continue
		}
		info, err := i.rotateOne(ctx, f, have.Info)
		if info.PID != have.Info.PID {
			have.Info, have.Servers, have.Reloaded = info, nil, true
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rotate %s: %w", f.Name, err))
			continue
		}
		have.Certificates.remember(f)
	}
	return have, errors.Join(failed...)
}

// rotateOne makes the worker serve a certificate, and has it prove that.
func (i Instance) rotateOne(ctx context.Context, f snapshots.BoundFile, info dataplane.RuntimeInfo) (dataplane.RuntimeInfo, error) {
	live, reload, err := i.API.RotateCertificate(ctx, f.Name, f.Content)
	if err != nil {
		return info, err
	}
	if !live {
		if err := i.await(ctx, reload); err != nil {
			return info, err
		}
		if info, err = i.API.RuntimeInfo(ctx); err != nil {
			return info, err
		}
	}
	if !i.serves(ctx, f) {
		return info, errors.New("the worker still has another certificate")
	}
	return info, nil
}

// serves reports whether the worker has this certificate, by its fingerprint.
func (i Instance) serves(ctx context.Context, f snapshots.BoundFile) bool {
	c := leaf(f.Content)
	found, err := i.API.RuntimeCertificate(ctx, f.Path)
	if err != nil || c == nil {
		return false
	}
	old, now := sha1.Sum(c.Raw), sum(c.Raw)
	fingerprint := strings.ToLower(strings.ReplaceAll(found.Fingerprint, ":", ""))
	return fingerprint == hex.EncodeToString(old[:]) || fingerprint == hex.EncodeToString(now[:])
}

// await waits for a reload that the API scheduled.
func (i Instance) await(ctx context.Context, id string) error {
	ended, err := i.poll(ctx, func() (bool, error) {
		r, err := i.API.Reload(ctx, id)
		switch {
		case err != nil:
			return false, err
		case r.Status == dataplane.ReloadFailed:
			return false, fmt.Errorf("%w: %s", dataplane.ErrReload, r.Response)
		}
		return r.Status == dataplane.ReloadSucceeded, nil
	})
	if err == nil && !ended {
		return fmt.Errorf("reload %s is not over after %s", id, i.ReloadTimeout)
	}
	return err
}
