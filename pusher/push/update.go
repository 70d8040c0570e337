package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The actions of a post are in one of its headers. The Dataplane API reads headers of 1 MiB, unless it was started with
// another --max-header-size. A proxy in front of it may take no more than 16 KiB.
const (
	longActions  = 512 << 10 // in bytes
	shortActions = 12 << 10
)

// manyChanges is the number of changes from which on one post is cheaper than a call for
// each server, if the post is quick. If it is not, see [round].
const manyChanges = 50

// quickPost is the largest number of servers with which a post is quick: about 50
// milliseconds with versions 3.2 to 3.4 of the Dataplane API.
const quickPost = 400

// Running is what is known about a worker.
type Running struct {
	// Servers are the servers of the worker, nil if they have to be read.
	Servers []bind.Server
	// Persisted is set if the file on disk has the same servers.
	Persisted bool
	// Written are the servers as the file on disk has them, nil if that is not known.
	Written []bind.Server
	// Dynamic are the servers that were added to those of the configuration. Deferred is
	// set while dynamic servers serve addresses that slots get with the next post.
	Dynamic  []Dynamic
	Deferred bool
	// Certificates are the certificates that the worker serves, by path. Unrotated are
	// certificates that the worker still did not serve after a reload, so another reload
	// would change nothing.
	Certificates, Unrotated CertificateHashes
	// RotatedByReload is when the worker was last replaced for certificates that are too
	// large to be given to a running worker.
	RotatedByReload time.Time
	// Maps is a digest of the entries of the worker's maps, as [bind.Bound].Entries is. It
	// is "" if they have to be read.
	Maps snapshots.Digest
	// Lost counts entries of maps that the API confirmed in one update but that were
	// missing.
	Lost int
	// Info describes the worker when it was last asked.
	Info dataplane.RuntimeInfo
	// Reloaded is set by an update that had to replace the worker for a certificate.
	Reloaded bool
	// ManualDrains are the servers that somebody took out of traffic by hand.
	ManualDrains []ManualDrain
	// Disk is the digest of the file on disk when it was last written, zero if that is not
	// known.
	Disk Digest

	// Unfinished is set by an update that made a part of the changes, even if it returned an error: the next one makes
	// more. Waits is set too if the rest takes a post, which [Wanted.CallsOnly] ruled out.
	Unfinished, Waits bool
	// SetsAddresses is set if the API is known to change addresses in the worker by calls.
	SetsAddresses bool

	api      string        // the version of the API, "" if it has to be read
	round    *round        // of which the last update made a part, nil if none is under way
	postTook time.Duration // how long the last post took, zero if there was none
	// othersFailed is when entries of maps or certificates could not be given to the worker.
	othersFailed time.Time
	// unanswered are the servers that a call without an answer changes. The map is not changed.
	unanswered map[serverKey]time.Time
}

// Wanted is what a worker should have, according to the snapshot that it runs.
type Wanted struct {
	Node    string
	Servers []bind.Server
	// CallsOnly is set if the update may only change servers, by calls, since the file is being written meanwhile.
	CallsOnly bool
	// Moved is when the endpoints of a backend changed, if that is known, and Namespaces are those of the endpoints. They
	// decide which of many changes are made first.
	Moved      map[string]time.Time
	Namespaces map[string]string
	// Dynamic are the settings of dynamic servers by backend, see [DynamicServers].
	Dynamic map[string]dataplane.DynamicServer
	// Certificates are the certificates that the worker should serve.
	Certificates CertificateHashes
	// Entries is a digest of the entries of the maps, see [bind.Bound].
	Entries snapshots.Digest
	// Bind returns everything that was bound. That takes long for a large snapshot, so Bind
	// is called only for the text and for the contents of certificates.
	Bind func() (bind.Bound, error)
}

// Has reports whether the worker is known to have these servers. Servers that somebody took
// out of traffic by hand do not count.
func (r Running) Has(want []bind.Server) bool {
	wanted, _ := keepDrained(want, r.ManualDrains)
	same := len(wanted) > 0 && len(r.Servers) == len(wanted) && &r.Servers[0] == &wanted[0]
	return r.Servers != nil && (same || slices.Equal(r.Servers, wanted))
}

// Another returns what is still known after another worker has replaced this one.
func (r Running) Another() Running {
	return Running{
		ManualDrains: r.ManualDrains, Disk: r.Disk, RotatedByReload: r.RotatedByReload, SetsAddresses: r.SetsAddresses, unanswered: r.unanswered,
	}
}

// Update gives the worker the servers, map entries and certificates that were bound,
// without a reload if possible. The worker has to run the shape that was bound. Update
// returns what the worker has now, even with an error. If the worker's servers are known,
// Update makes one call in addition to those that change something. The answers to those
// calls are the proof.
//
// Before version 3.4, the API changes addresses only together with the file on disk. Later
// versions change them at once, and the caller has to call [Instance.WriteServers]
// afterwards.
func (i Instance) Update(ctx context.Context, want Wanted, have Running) (Running, error) {
	want.Bind = sync.OnceValues(want.Bind)
	have.Unfinished, have.Waits = false, false
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
	first := have.Info.PID == 0
	have.Info, have.Lost = info, 0
	if have.Servers == nil {
		if have, err = i.readAll(ctx, want, have); err != nil {
			return have, err
		}
	}
	if first {
		have = have.afterAnother(want.Servers)
	}
	have, serversErr := i.setServers(ctx, want, have)
	if serversErr != nil {
		have.api, have.SetsAddresses = "", false // the API may be an older version now
		if !isOfOne(serversErr) {
			return have, serversErr
		}
	}
	if want.CallsOnly || have.Unfinished && time.Since(have.othersFailed) < failedRest {
		return have, serversErr
	}
	if have, err = i.setOthers(ctx, want, have); err != nil {
		have.othersFailed = time.Now()
	}
	return have, errors.Join(serversErr, err)
}

// setOthers gives the worker entries of maps and certificates.
func (i Instance) setOthers(ctx context.Context, want Wanted, have Running) (Running, error) {
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

// isOfOne reports whether an error concerns only one object, such as a server, and not the
// whole instance. Then other objects can still be changed.
func isOfOne(err error) bool {
	if _, ok := errors.AsType[notAsSetError](err); ok {
		return true
	}
	e, ok := errors.AsType[*dataplane.Error](err)
	return ok && e.Status >= http.StatusBadRequest && e.Status != http.StatusServiceUnavailable &&
		!errors.Is(err, dataplane.ErrUnauthorized) && !errors.Is(err, dataplane.ErrTooMany) && !errors.Is(err, dataplane.ErrRuntime)
}

// keepMaps gives the maps of the worker their entries. If that fails for a worker with an
// override, it removes the override, since only a reload from what the worker loaded can
// help then. A worker without an override has loaded its entries, even if the API cannot
// read them.
func (i Instance) keepMaps(ctx context.Context, want Wanted, have Running) (Running, error) {
	if have.Maps == want.Entries {
		return have, nil
	}
	bound, err := want.Bind()
	if err != nil {
		return have, err
	}
	lost, err := runtime{i}.setMaps(ctx, bound.Maps)
	have.Lost = lost
	switch {
	case errors.Is(err, errMaps) && have.Info.Loaded != "":
		i.Override.Set(Override{})
	case errors.Is(err, errUnseen):
		err = nil
	}
	if err == nil {
		have.Maps = want.Entries
	}
	return have, err
}

// readAll reads all servers of the worker. It takes their weights from the file. If the
// file has none, there are none to set.
func (i Instance) readAll(ctx context.Context, want Wanted, have Running) (Running, error) {
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return have, err
	}
	disk := readRaw(raw.Config)
	servers := make([]bind.Server, len(want.Servers))
	for n, s := range want.Servers {
		servers[n] = bind.Server{Backend: s.Backend, Name: s.Name, Weight: s.Weight}
		if l := disk.servers()[serverKey{s.Backend, s.Name}]; l.weight >= 0 && l.address.IsValid() {
			servers[n].Weight = l.weight
		}
	}
	have.Dynamic, have.Deferred = nil, false
	found, err := i.readBackAll(ctx, servers, spans(servers), func(d []Dynamic) { have.Dynamic = append(have.Dynamic, d...) })
	if err != nil {
		return have, err
	}
	bound := bind.Bound{Node: want.Node, Servers: want.Servers} // holds compares nothing else
	have.Servers, have.Persisted = slices.Concat(found...), disk.holds(bound) && disk.version == raw.Version
	have.Written = disk.written(want.Servers)
	return have, nil
}

// readBack returns the servers of some backends, updated from the worker.
func (i Instance) readBack(ctx context.Context, servers []bind.Server, backends []span) ([][]bind.Server, error) {
	return i.readBackAll(ctx, servers, backends, func([]Dynamic) {})
}

// readBackAll is readBack that also passes on the dynamic servers that it finds.
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
			if !ok { // somebody deleted the server: it counts as gone, see isGone, and the other servers are read
				some[n] = bind.Server{Backend: s.Backend, Name: s.Name, Weight: s.Weight}
				continue
			}
			some[n] = read(s, f)
		}
		out = append(out, some)
	}
	return out, nil
}

func (i Instance) setServers(ctx context.Context, want Wanted, have Running) (Running, error) {
	var wanted []bind.Server
	wanted, have.ManualDrains = keepDrained(want.Servers, have.ManualDrains)
	list, gone := splitGone(changes(have.Servers, wanted))
	if len(list) == 0 {
		have.Deferred = false
		return i.noteGone(ctx, gone, have, nil)
	}
	if i.defers(ctx, want, list, &have) {
		if served, ok, err := (runtime{i}).setDynamic(ctx, want, have); ok {
			return i.noteGone(ctx, gone, served, err)
		} else if len(served.Dynamic) > 0 {
			have.Dynamic = served.Dynamic
		}
	}
	deferred := have.Deferred
	have.Deferred = false
	var err error
	if Large(want.Servers) || want.CallsOnly {
		have, err = runtime{i}.setInParts(ctx, want, list, gone, have)
	} else {
		var told answers
		have, told, err = i.set(ctx, want, list, have)
		have, err = i.confirm(ctx, want, list, gone, have, told, err)
	}
	// Until slots have their addresses, dynamic servers are not left over.
	have.Deferred = deferred && have.Servers != nil && (err != nil || have.Unfinished)
	if !have.Unfinished {
		return i.noteGone(ctx, gone, have, err)
	}
	noted, goneErr := i.noteGone(ctx, gone, have, nil)
	if goneErr != nil && !isOfOne(goneErr) {
		return noted, errors.Join(err, goneErr)
	}
	return noted, err // that a server is gone is an error of the last part
}

// withoutGone returns the servers of a worker without those that are gone: a confirmed list has what was wanted.
func withoutGone(servers []bind.Server, gone []change) []bind.Server {
	out := slices.Clone(servers)
	for _, c := range gone {
		out[c.at] = c.from
	}
	return out
}

// mostAsked is how many of the servers that are gone are asked for.
const mostAsked = 10

// noteGone notes in the [Record] that somebody deleted servers from the worker, so that the worker is replaced: no call of the API makes
// a server of the configuration again, with its checks. That a list lacks a server is no proof, and a call for that server is asked to
// say so too. Before, the others were changed: a post that names a server which is gone is refused as a whole.
func (i Instance) noteGone(ctx context.Context, gone []change, have Running, err error) (Running, error) {
	if len(gone) == 0 || have.Servers == nil || err != nil && !isOfOne(err) {
		return have, err
	}
	have.Servers = withoutGone(have.Servers, gone)
	for _, c := range gone[:min(len(gone), mostAsked)] {
		server, askErr := i.API.SetServer(ctx, c.to.Backend, c.to.Name, dataplane.ServerChange{AdminState: string(c.to.State)})
		switch {
		case errors.Is(askErr, dataplane.ErrNotFound):
			i.Record.damaged(have.Info, fmt.Sprintf("%sdeleted server %s/%s from its worker", bySomebody, c.to.Backend, c.to.Name))
			return have, errors.Join(err, undone(gone))
		case askErr != nil:
			return have, errors.Join(err, askErr)
		case server.Name == c.to.Name:
			have.Servers[c.at] = read(c.from, server)
		}
	}
	return have, errors.Join(err, undone(gone))
}

// confirm checks that the worker has the servers after a list of changes. Other changes are made later, and their servers
// stay as they are known. err is the error of the changes, which confirm returns.
func (i Instance) confirm(ctx context.Context, want Wanted, list, later []change, have Running, told answers, err error) (Running, error) {
	known, touched := have.Servers, spansOf(want.Servers, list)
	found, readErr := i.outcome(ctx, known, touched, list, told)
	if readErr != nil {
		have.Servers = nil
		return have, errors.Join(err, readErr)
	}
	if err != nil {
		have.Servers = replaced(known, touched, found)
		return have, err
	}
	wanted, _ := have.toHave(want.Servers, later, known)
	for n, at := range touched {
		believe(found[n], at.of(wanted))
		have = have.noteDrains(at.of(known), found[n], list)
	}
	now := known
	if len(later) > 0 {
		now = replaced(known, touched, found)
	}
	wanted, have.ManualDrains = have.toHave(want.Servers, later, now)
	for n, at := range touched {
		left := slices.DeleteFunc(changes(found[n], at.of(wanted)), func(c change) bool { return c.gone() && isGone(known[at.from+c.at]) })
		if len(left) > 0 {
			have.Servers = replaced(known, touched, found)
			return have, left[0].undone()
		}
	}
	have.Servers = wanted // returning the same list makes later comparisons fast
	return have, nil
}

// outcome returns the servers of some backends after changes. It takes them from the
// answers to the changes, which the API reads from the worker. If an answer is missing, it
// asks the worker.
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

// set makes the changes of a small configuration. It makes a call for each, whose answer
// shows the result, or one post of everything.
func (i Instance) set(ctx context.Context, want Wanted, list []change, have Running) (Running, answers, error) {
	if len(list) < manyChanges && !reweighs(list) && (!readdresses(list) || i.setsAddresses(ctx, &have)) {
		if have.Written != nil && Unserved(have.Written, want.Servers) {
			// The file can be written first. If that fails, the worker is changed
			// nevertheless.
			posted, err := i.setBoundByPost(ctx, want, list, have)
			if err == nil {
				return posted, nil, nil
			}
			have.Written, have.Disk, have.unanswered = nil, Digest{}, posted.unanswered
		}
		// A successful post from before this process started may have written these
		// servers.
		have.Persisted = have.Persisted && (!slices.ContainsFunc(list, change.onDisk) || slices.Equal(have.Written, want.Servers))
		done, err := runtime{i}.setAll(ctx, list)
		if err != nil {
			done.told = nil // the worker is asked
		}
		return have.withUnanswered(list, err), done.told, err
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

// defers reports whether slots have to wait for their addresses, because they need a post
// and that post takes long.
func (i Instance) defers(ctx context.Context, want Wanted, list []change, have *Running) bool {
	return Large(want.Servers) && len(want.Dynamic) > 0 && (have.Deferred || readdresses(list)) && !i.setsAddresses(ctx, have)
}

// setsAddresses reports whether the API changes addresses in the worker. Older versions
// answer such a call with 200 and do not change the address, so the call is not made in
// doubt. The version is asked for once, since what is set is read back anyway.
func (i Instance) setsAddresses(ctx context.Context, have *Running) bool {
	if have.api == "" {
		info, err := i.API.Info(ctx)
		if err != nil {
			return false
		}
		have.api = info.Version
	}
	have.SetsAddresses = atLeast34(have.api)
	return have.SetsAddresses
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

// setByPost posts the text without a reload, with the changes for the worker. Servers take
// traffic only after the worker has reported their addresses, see [stages]. It returns the
// digest of the file on disk. It also runs if only the file has to change.
func (i Instance) setByPost(ctx context.Context, want bind.Bound, list []change, before Running) (have Running, failed error) {
	have = before
	have.Persisted, have.Written, have.Disk = false, nil, Digest{}
	first, then := stages(list)
	var err error
	if len(first) > 0 {
		began := time.Now()
		if have.Disk, err = i.postActions(ctx, want.Config, actions(first)); err != nil {
			return have.withUnanswered(first, err), err
		}
		have.Written, have.postTook = want.Servers, time.Since(began)
		unplaced, err := (runtime{i}).placed(ctx, have.Servers, first)
		if err != nil {
			return have, err
		}
		if len(unplaced) > 0 { // the other changes go on
			then = slices.DeleteFunc(then, func(c change) bool {
				return slices.ContainsFunc(unplaced, func(u change) bool { return u.to.Backend == c.to.Backend })
			})
			defer func() { failed = errors.Join(failed, undone(unplaced)) }()
		}
		if len(then) < manyChanges && !reweighs(then) && !readdresses(then) {
			_, err = runtime{i}.setAll(ctx, then)
			have.Persisted = err == nil
			return have.withUnanswered(then, err), err
		}
	}
	began := time.Now()
	if have.Disk, err = i.postActions(ctx, want.Config, actions(then)); err != nil {
		have.Written = nil
		return have.withUnanswered(then, err), err
	}
	have.Written, have.postTook = want.Servers, time.Since(began)
	if readdresses(then) {
		var unplaced []change
		if unplaced, err = (runtime{i}).placed(ctx, have.Servers, then); err == nil {
			err = undone(unplaced)
		}
	}
	have.Persisted = err == nil
	return have, err
}

// undone returns the errors of changes whose servers do not have what was set.
func undone(list []change) error {
	errs := make([]error, 0, len(list))
	for _, c := range list {
		errs = append(errs, c.undone())
	}
	return several(errs)
}

// postActions posts the text. It posts it several times if one post cannot carry all
// actions. If a post with a long header is refused, shorter ones follow.
func (i Instance) postActions(ctx context.Context, config []byte, all []dataplane.RuntimeAction) (disk Digest, err error) {
	length := longActions
	for first := true; first || len(all) > 0; first = false {
		n := carried(all, length)
		disk, err = i.post(ctx, config, all[:n])
		if e, refused := errors.AsType[*dataplane.Error](err); refused && e.Status/100 == 4 && n > carried(all, shortActions) {
			length = shortActions
			n = carried(all, length)
			disk, err = i.post(ctx, config, all[:n])
		}
		if err != nil {
			return Digest{}, err
		}
		all = all[n:]
	}
	return disk, nil
}

// carried returns how many of the actions a header of so many bytes has.
func carried(all []dataplane.RuntimeAction, length int) int {
	for n, a := range all {
		if length -= len(a.String()) + 1; length < 0 {
			return max(n, 1)
		}
	}
	return len(all)
}

// WriteServers writes the text to disk. The worker has to run the shape of the text. If its
// servers are known, WriteServers changes them too, after the file is written, unless calls of the
// next update do that sooner. It returns what the worker has now, even with an error.
func (i Instance) WriteServers(ctx context.Context, want bind.Bound, have Running) (Running, error) {
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return have, err
	}
	if !bind.SameNode(info.Node, want.Node) {
		return have, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	var list, gone []change
	if info.PID == have.Info.PID && aligned(have.Servers, want.Servers) {
		var wanted []bind.Server
		wanted, have.ManualDrains = keepDrained(want.Servers, have.ManualDrains)
		list, gone = splitGone(changes(have.Servers, wanted))
	}
	if Large(want.Servers) && !have.Deferred && !reweighs(list) && (!readdresses(list) || i.setsAddresses(ctx, &have)) {
		list = nil // the next update makes calls, and nothing else waits for several posts
	}
	have, err = i.setByPost(ctx, want, list, have)
	if err == nil {
		have.Deferred = false
	}
	if len(list) > 0 {
		have, err = i.confirm(ctx, Wanted{Node: want.Node, Servers: want.Servers}, list, gone, have, nil, err)
	}
	if len(gone) > 0 && have.Servers != nil {
		have.Servers = withoutGone(have.Servers, gone)
	}
	if err != nil || len(have.Leftovers()) == 0 {
		return have, err
	}
	return i.DropDynamicServers(ctx, have)
}

// WriteFile is WriteServers that does not change the worker. Updates with [Wanted.CallsOnly] may do that meanwhile, so
// only what is returned about the file counts, see [Running.WithFile].
func (i Instance) WriteFile(ctx context.Context, want bind.Bound, have Running) (Running, error) {
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return have, err
	}
	if !bind.SameNode(info.Node, want.Node) {
		return have, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	return i.setByPost(ctx, want, nil, have)
}

// WriteText writes the text to disk, and returns the digest of the file. The worker has to
// run that text already.
func (i Instance) WriteText(ctx context.Context, want bind.Bound) (Digest, error) {
	info, err := i.RuntimeInfo(ctx)
	if err != nil {
		return Digest{}, err
	}
	if !bind.SameNode(info.Node, want.Node) {
		return Digest{}, fmt.Errorf("%w: %s", ErrElsewhere, info.Node)
	}
	return i.post(ctx, want.Config, nil)
}

// post writes the text without a reload. It may try again after a conflict, since only the
// snapshot that the worker runs is ever posted this way.
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
		i.dropTransactions(ctx)
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
