package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxActions bounds how many actions travel with one post, in a header.
const maxActions = 256

// manyChanges is from where on one post, which costs as much as the whole
// configuration, is cheaper than a call for each server.
const manyChanges = 50

// quickPost is how many servers a configuration may have for a post of it to be quick: up
// to about 50 milliseconds with the Dataplane API's versions 3.2 to 3.4.
const quickPost = 400

// Running is what is known of a worker.
type Running struct {
	// Servers are those it has, nil if that has to be asked.
	Servers []bind.Server
	// Persisted is set when the file on disk says so too.
	Persisted bool
	// Written are the servers as the file on disk has them, nil if that is not known.
	Written []bind.Server
	// Dynamic are the servers that were added to those of the configuration. Deferred is
	// set while they make up for addresses that slots get with the next post.
	Dynamic  []Dynamic
	Deferred bool
	// Certificates are those that it serves, by path.
	Certificates Known
	// Maps digests the entries that its maps have, as [bind.Bound].Entries does,
	// "" if that has to be asked.
	Maps snapshots.Digest
	// Lost counts entries of maps that were acknowledged and not there, in one update.
	Lost int
	// Info is of the worker when it was last asked.
	Info dataplane.RuntimeInfo
	// Reloaded is set by an update that had to replace the worker, for the sake of
	// a certificate.
	Reloaded bool
	// ByHand are the servers that somebody else took out of traffic.
	ByHand []Hand
	// Disk is what the file on disk was when it was last written, the zero value if
	// that is not known.
	Disk Digest

	api string // the version of the API, "" if that has to be asked
}

// Wanted is what a worker is to have of a snapshot that it runs.
type Wanted struct {
	Node    string
	Servers []bind.Server
	// Dynamic are the settings of dynamic servers by backend, see [DynamicServers].
	Dynamic map[string]dataplane.DynamicServer
	// Certificates are those that it is to serve.
	Certificates Known
	// Entries digests those of its maps, see [bind.Bound].
	Entries snapshots.Digest
	// Bind returns all that was bound. It takes its time for a large snapshot, and is
	// called for what the rest does not tell: the text, and contents of certificates.
	Bind func() (bind.Bound, error)
}

// Has reports whether the worker is known to have these servers, apart from those
// that somebody else took out of traffic.
func (r Running) Has(want []bind.Server) bool {
	wanted, _ := respect(want, r.ByHand)
	same := len(wanted) > 0 && len(r.Servers) == len(wanted) && &r.Servers[0] == &wanted[0]
	return r.Servers != nil && (same || slices.Equal(r.Servers, wanted))
}

// Another returns what is known of the worker that took this one's place.
func (r Running) Another() Running { return Running{ByHand: r.ByHand, Disk: r.Disk} }

// Update makes the worker, which has to run the shape that was bound, have the
// servers, map entries and certificates that were bound, without a reload where that can
// be. It returns what the worker has now, also with an error. Where it is known what
// the worker has, it costs one call more than those for what changed, whose answers are
// the proof.
//
// Before version 3.4 the API changes addresses only along with the file on disk.
// From then on it does so at once, and [Instance.Persist] has to follow.
func (i Instance) Update(ctx context.Context, want Wanted, have Running) (Running, error) {
	want.Bind = sync.OnceValues(want.Bind)
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return have, err
	}
	if !bind.SameNode(info.Node, want.Node) {
		return have, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	if info.PID != have.Info.PID || len(have.Servers) != len(want.Servers) {
		have.Servers, have.Dynamic, have.Deferred = nil, nil, false
	}
	if info.PID != have.Info.PID {
		have.Maps = ""
	}
	have.Info, have.Lost = info, 0
	if have.Servers == nil {
		if have, err = i.readAll(ctx, want, have); err != nil {
			return have, err
		}
	}
	if have, err = i.setServers(ctx, want, have); err != nil {
		have.api = "" // it may be another one by now, which does less
		return have, err
	}
	have, mapsErr := i.keepMaps(ctx, want, have)
	if want.Certificates.In(have.Certificates) {
		return have, mapsErr
	}
	bound, err := want.Bind()
	if err != nil {
		return have, errors.Join(mapsErr, err)
	}
	have, err = i.rotate(ctx, bound, have)
	return have, errors.Join(mapsErr, err)
}

// keepMaps makes the maps of the worker have their entries. Where that cannot be, and
// the worker is not known by what it loaded, it is from then on: that is what it can be
// brought from, by a reload. One that is has them from there, also where the API cannot
// tell.
func (i Instance) keepMaps(ctx context.Context, want Wanted, have Running) (Running, error) {
	if have.Maps == want.Entries {
		return have, nil
	}
	bound, err := want.Bind()
	if err != nil {
		return have, err
	}
	_, lost, err := i.setMaps(ctx, bound.Maps)
	have.Lost = lost
	switch {
	case errors.Is(err, errMaps) && have.Info.Loaded != "":
		i.Names.Set(Alias{})
	case errors.Is(err, errUnseen):
		err = nil
	}
	if err == nil {
		have.Maps = want.Entries
	}
	return have, err
}

// readAll asks for all servers of the worker. Their weights are those of the file;
// where it has none, there is none to set.
func (i Instance) readAll(ctx context.Context, want Wanted, have Running) (Running, error) {
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return have, err
	}
	disk := readText(raw.Config)
	servers := make([]bind.Server, len(want.Servers))
	for n, s := range want.Servers {
		servers[n] = bind.Server{Backend: s.Backend, Name: s.Name, Weight: s.Weight}
		if l := disk.servers[serverKey{s.Backend, s.Name}]; l.weight >= 0 && l.address.IsValid() {
			servers[n].Weight = l.weight
		}
	}
	have.Dynamic, have.Deferred = nil, false
	found, err := i.readBackAll(ctx, servers, spans(servers), func(d []Dynamic) { have.Dynamic = append(have.Dynamic, d...) })
	if err != nil {
		return have, err
	}
	bound := bind.Bound{Node: want.Node, Servers: want.Servers} // all that is compared
	have.Servers, have.Persisted = slices.Concat(found...), disk.holds(bound) && disk.version == raw.Version
	have.Written = disk.written(want.Servers)
	return have, nil
}

// readBack returns the servers of some backends, brought up to date with the worker.
func (i Instance) readBack(ctx context.Context, servers []bind.Server, backends []span) ([][]bind.Server, error) {
	return i.readBackAll(ctx, servers, backends, func([]Dynamic) {})
}

// readBackAll is readBack that also tells of dynamic servers.
func (i Instance) readBackAll(ctx context.Context, servers []bind.Server, backends []span, dynamic func([]Dynamic)) ([][]bind.Server, error) {
	var out [][]bind.Server
	for _, at := range backends {
		some := slices.Clone(at.of(servers))
		list, err := i.API.Servers(ctx, some[0].Backend)
		if err != nil {
			return nil, err
		}
		dynamic(dynamicOf(some[0].Backend, list))
		found := make(map[string]dataplane.Server, len(list))
		for _, s := range list {
			found[s.Name] = s
		}
		for n, s := range some {
			f, ok := found[s.Name]
			if !ok {
				return nil, fmt.Errorf("%w: it has no server %s/%s", ErrElsewhere, s.Backend, s.Name)
			}
			some[n] = read(s, f)
		}
		out = append(out, some)
	}
	return out, nil
}

func (i Instance) setServers(ctx context.Context, want Wanted, have Running) (Running, error) {
	var wanted []bind.Server
	wanted, have.ByHand = respect(want.Servers, have.ByHand)
	list := changes(have.Servers, wanted)
	if len(list) == 0 {
		have.Deferred = false
		return have, nil
	}
	if i.defers(ctx, want, list, &have) {
		if served, ok, err := i.setDynamic(ctx, want, have); ok {
			return served, err
		} else if len(served.Dynamic) > 0 {
			have.Dynamic = served.Dynamic
		}
	}
	have.Deferred = false
	have, told, err := i.set(ctx, want, list, have)
	return i.confirm(ctx, want, list, have, told, err)
}

// confirm proves that the worker has the servers after the changes of a list. The error is
// that of the changes, if they failed.
func (i Instance) confirm(ctx context.Context, want Wanted, list []change, have Running, told answers, err error) (Running, error) {
	wanted, _ := respect(want.Servers, have.ByHand)
	known, touched := have.Servers, spansOf(wanted, list)
	found, readErr := i.outcome(ctx, known, touched, list, told)
	if readErr != nil {
		have.Servers = nil
		return have, errors.Join(err, readErr)
	}
	if err != nil {
		have.Servers = replaced(known, touched, found)
		return have, err
	}
	for n, at := range touched {
		believe(found[n], at.of(wanted))
		have.ByHand = notice(have.ByHand, at.of(known), found[n], list)
	}
	wanted, have.ByHand = respect(want.Servers, have.ByHand)
	for n, at := range touched {
		if left := changes(found[n], at.of(wanted)); len(left) > 0 {
			have.Servers = replaced(known, touched, found)
			return have, left[0].undone()
		}
	}
	have.Servers = wanted // the same list, which is quickly compared
	return have, nil
}

// outcome returns the servers of some backends after changes: as the answers told them,
// which the API reads from the worker when it has made a change, or, where one is missing,
// as the worker says now.
func (i Instance) outcome(ctx context.Context, known []bind.Server, backends []span, list []change, told answers) ([][]bind.Server, error) {
	if !told.to(list) {
		return i.readBack(ctx, known, backends)
	}
	out := make([][]bind.Server, 0, len(backends))
	for _, at := range backends {
		out = append(out, told.update(at.of(known)))
	}
	return out, nil
}

// set makes the changes: by calls for each, which tell what came of them, or by one post
// of everything.
func (i Instance) set(ctx context.Context, want Wanted, list []change, have Running) (Running, answers, error) {
	if len(list) < manyChanges && !reweighs(list) && (!readdresses(list) || i.setsAddresses(ctx, &have)) {
		if len(want.Servers) <= quickPost && have.Written != nil && Unserved(have.Written, want.Servers) {
			// The file can come first. Where it cannot be written, the worker is changed all the same.
			if posted, err := i.setBoundByPost(ctx, want, list, have); err == nil {
				return posted, nil, nil
			}
			have.Written, have.Disk = nil, Digest{}
		}
		// A post that came through before this process was started may have written them.
		have.Persisted = have.Persisted && (!slices.ContainsFunc(list, change.onDisk) || slices.Equal(have.Written, want.Servers))
		told, err := i.setDirectly(ctx, list)
		return have, told, err
	}
	have, err := i.setBoundByPost(ctx, want, list, have)
	return have, nil, err
}

func (i Instance) setBoundByPost(ctx context.Context, want Wanted, list []change, have Running) (Running, error) {
	bound, err := want.Bind()
	if err != nil {
		have.Persisted = false
		return have, err
	}
	return i.setByPost(ctx, bound, list, have)
}

// defers reports whether slots get addresses only with a post that takes its time.
func (i Instance) defers(ctx context.Context, want Wanted, list []change, have *Running) bool {
	return len(want.Servers) > quickPost && len(want.Dynamic) > 0 && (have.Deferred || readdresses(list)) && !i.setsAddresses(ctx, have)
}

// setsAddresses reports whether the API changes addresses in the worker; older
// ones answer the same call with 200 and leave the address as it is, so in doubt
// it is not made. It is asked once: what is set is read back.
func (i Instance) setsAddresses(ctx context.Context, have *Running) bool {
	if have.api == "" {
		info, err := i.API.Info(ctx)
		if err != nil {
			return false
		}
		have.api = info.Version
	}
	return atLeast34(have.api)
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

// setDirectly changes one server after the other. It returns the answers to the last
// call for each, or an error with none.
func (i Instance) setDirectly(ctx context.Context, list []change) (answers, error) {
	told := answers{}
	for _, c := range readyFirst(list) {
		for _, call := range c.calls() {
			set := i.setServer
			if call.Address != "" {
				set = i.place
			}
			server, err := set(ctx, c.to, call)
			if err != nil {
				return nil, err
			}
			told[serverKey{c.to.Backend, c.to.Name}] = server
		}
	}
	return told, nil
}

// setServer makes a call. A server that tracks another one has its health from there,
// and cannot be said to be up: then the rest has to do.
func (i Instance) setServer(ctx context.Context, s bind.Server, call dataplane.ServerChange) (dataplane.Server, error) {
	server, err := i.API.SetServer(ctx, s.Backend, s.Name, call)
	if call.Up && errors.Is(err, dataplane.ErrUnavailable) {
		call.Up = false
		return i.API.SetServer(ctx, s.Backend, s.Name, call)
	}
	return server, err
}

// setByPost posts the text without a reload, with what to change in the worker. Servers
// take traffic only when the worker is seen to have their addresses, see [stages]. It tells
// what is on disk then, and is needed also where nothing is to be changed but the file.
func (i Instance) setByPost(ctx context.Context, want bind.Bound, list []change, have Running) (Running, error) {
	have.Persisted, have.Written, have.Disk = false, nil, Digest{}
	first, then := stages(list)
	var err error
	if len(first) > 0 {
		if have.Disk, err = i.postActions(ctx, want.Config, actions(first)); err != nil {
			return have, err
		}
		have.Written = want.Servers
		if err = i.placed(ctx, have.Servers, first); err != nil {
			return have, err
		}
		if len(then) < manyChanges && !reweighs(then) && !readdresses(then) {
			_, err = i.setDirectly(ctx, then)
			have.Persisted = err == nil
			return have, err
		}
	}
	if have.Disk, err = i.postActions(ctx, want.Config, actions(then)); err != nil {
		have.Written = nil
		return have, err
	}
	have.Written = want.Servers
	if readdresses(then) {
		err = i.placed(ctx, have.Servers, then)
	}
	have.Persisted = err == nil
	return have, err
}

// postActions posts the text once, or as often as it takes for all actions.
func (i Instance) postActions(ctx context.Context, config []byte, all []dataplane.RuntimeAction) (disk Digest, err error) {
	for first := true; first || len(all) > 0; first = false {
		n := min(len(all), maxActions)
		if disk, err = i.post(ctx, config, all[:n]); err != nil {
			return Digest{}, err
		}
		all = all[n:]
	}
	return disk, nil
}

// Settle writes the text to disk, for a worker that runs its shape, and makes the worker
// have the servers along with that, where it is known which ones it has: the file is
// written first. It returns what the worker has now, also with an error.
func (i Instance) Settle(ctx context.Context, want bind.Bound, have Running) (Running, error) {
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return have, err
	}
	if !bind.SameNode(info.Node, want.Node) {
		return have, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	var list []change
	if info.PID == have.Info.PID && aligned(have.Servers, want.Servers) {
		var wanted []bind.Server
		wanted, have.ByHand = respect(want.Servers, have.ByHand)
		list = changes(have.Servers, wanted)
	}
	have, err = i.setByPost(ctx, want, list, have)
	if err == nil {
		have.Deferred = false
	}
	if len(list) > 0 {
		have, err = i.confirm(ctx, Wanted{Node: want.Node, Servers: want.Servers}, list, have, nil, err)
	}
	if err != nil || len(have.Leftovers()) == 0 {
		return have, err
	}
	return i.Tidy(ctx, have)
}

// Persist writes the text to disk, for a worker that runs it already, and returns
// what the file is now.
func (i Instance) Persist(ctx context.Context, want bind.Bound) (Digest, error) {
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return Digest{}, err
	}
	if !bind.SameNode(info.Node, want.Node) {
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
