// Package push brings one instance to run one bound snapshot. It then keeps the servers and
// certificates of the running worker current, without a reload.
//
// Every function can be called again at any point, even after an interrupted call. Each
// looks at the instance, does what is missing, and looks again. In particular, no function
// posts a configuration again because an answer was lost: it first finds out whether the
// post took effect.
//
// A snapshot counts as applied if the worker names it and the file on disk has it. A 2xx
// answer of the API proves nothing.
//
// The functions call the API and decide for one instance only. The caller decides which
// instance gets what, and when. The caller also makes sure that calls for one instance do
// not overlap.
//
// # Decisions
//
// The cost of a changed endpoint depends on its Service only: the slots and servers of its
// backends are assigned again, and the others are copied. With version 3.4 of the API and
// later, the change takes two calls. The first asks for the state of the worker, the second
// makes the change. A new endpoint takes a third call, which sets its health to up.
// Otherwise the server would stay down for seconds, because of the checks of the slot's
// previous endpoint. The answer to a change holds the server as the API reads it from the
// worker afterwards, and that is the proof. Inspections find what somebody else does to
// other servers. The whole snapshot is bound only when its text is posted. Among 1,000
// backends, two calls take 2.5 times as long as the changing call alone (BenchmarkEndpoint
// in pusher/core). The version of the API is asked for again only if an answer shows that a
// change did not take effect.
//
// Many changes at once are posted if the configuration is small. If it is large, calls make
// them in parts, so that nobody's change waits for all others, see rounds.go. Before version
// 3.4, addresses need a post. Up to 50 new endpoints are then served by dynamic servers until
// that post; if there are more, everything waits for it.
package push

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxTries is how often a push tries before it gives up, after a conflict with another
// writer or a lost answer.
const maxTries = 3

var errNotOnDisk = errors.New("the file on disk is not what was posted")

// momentOfReload is how long no worker may answer during a reload.
const momentOfReload = 2 * time.Second

// timeToLook is the shortest time that a look at an instance is given.
const timeToLook = 5 * time.Second

// Done is the result of a successful push.
type Done struct {
	// Info describes the worker, which names the snapshot.
	Info dataplane.RuntimeInfo
	// Reloaded is set if the push replaced the worker. The worker then runs the servers of
	// the bound snapshot, see [Loaded].
	Reloaded bool
	// Disk is the digest of the file on disk.
	Disk Digest
	// Lost counts entries of maps that the API confirmed but that were missing.
	Lost int
	// Running is what the worker has, if it was changed at run time. With an error, it may have only what [Running.Unsure] takes.
	Running Running
	// Why says why a reload was needed, if the worker already named the snapshot.
	Why string
}

// Push makes the instance run what was bound, and writes the same to its disk. If both are
// so already, it changes nothing. It first uploads missing files, and notes them in known.
//
// If HAProxy refuses the configuration or does not start with it, the error wraps
// [ErrRefused]. The old worker keeps running. The file and the memory of the API are
// restored to what that worker runs. If good is what it runs, they get the text of good.
func (i Instance) Push(ctx context.Context, want bind.Bound, good *bind.Bound, known CertificateHashes) (Done, error) {
	if err := checkText(want.Config); err != nil {
		return Done{}, err
	}
	p := attempt{Instance: i, want: want, good: good, known: known, until: time.Now().Add(i.ReloadTimeout)}
	var err error
	for range maxTries {
		var again bool
		if again, err = p.once(ctx); !again {
			return p.done, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		_, err = p.prove(ctx) // the last try may have succeeded
	}
	return p.done, err
}

// attempt is one call of Push.
type attempt struct {
	Instance
	want  bind.Bound
	good  *bind.Bound
	known CertificateHashes
	done  Done
	// until is when the last reload has to be over.
	until time.Time
}

// wait polls until the last reload has to be over, and for a moment at least. All calls of
// wait share that deadline. An instance that does not answer does not extend it.
func (p *attempt) wait(ctx context.Context, done func(ctx context.Context) (bool, error)) (bool, error) {
	i := p.Instance
	i.ReloadTimeout = min(p.ReloadTimeout, max(time.Until(p.until), momentOfReload))
	within, cancel := context.WithTimeout(ctx, i.ReloadTimeout)
	defer cancel()
	return i.poll(within, func() (bool, error) {
		ok, err := done(within)
		if err != nil && within.Err() != nil && ctx.Err() == nil {
			return false, nil
		}
		return ok, err
	})
}

// lookInTime looks at the instance. It waits for answers until the last reload has to be
// over, or for the time that reading a large configuration takes.
func (p *attempt) lookInTime(ctx context.Context) (sight, error) {
	ctx, cancel := context.WithTimeout(ctx, max(time.Until(p.until), timeToLook))
	defer cancel()
	return p.look(ctx)
}

// sight is the state of an instance at the time of a look.
type sight struct {
	info   dataplane.RuntimeInfo
	raw    dataplane.Raw
	disk   text
	memory int64 // the version of the configuration in the API's memory
	// changed says why the file is not what a pusher wrote. foreign says why the worker was
	// not started from what a pusher wrote. Each is "" if there is no such reason, or it is
	// not known.
	changed, foreign string
}

func (i Instance) look(ctx context.Context) (sight, error) {
	info, err := i.WorkerInfo(ctx)
	if err != nil {
		return sight{}, err
	}
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return sight{}, err
	}
	s := sight{info: info, raw: raw, disk: readRaw(raw.Config), memory: raw.Version}
	s.changed = foreignText(raw, i.Record.Remembered().Marked)
	s.foreign = i.Record.judge(info, time.Now(), raw)
	return s, nil
}

// Judge finds out what the worker was started from, and notes it in the instance's
// [Record].
func (i Instance) Judge(ctx context.Context) error {
	_, err := i.look(ctx)
	return err
}

// WorkerInfo asks the worker about itself. While HAProxy replaces the worker, or the API
// restarts, nobody answers for a moment, and WorkerInfo asks again.
func (i Instance) WorkerInfo(ctx context.Context) (info dataplane.RuntimeInfo, err error) {
	i.ReloadTimeout = min(i.ReloadTimeout, momentOfReload)
	_, _ = i.poll(ctx, func() (bool, error) {
		info, err = i.RuntimeInfo(ctx)
		return !isMomentary(err), nil
	})
	return info, err
}

// isMomentary reports whether an error may be due to a worker that is being replaced, or to
// an API that restarts.
func isMomentary(err error) bool {
	return errors.Is(err, dataplane.ErrRuntime) || errors.Is(err, dataplane.ErrUnreachable)
}

// settled reports whether the worker, the disk and the API's memory agree with what was
// bound.
func (s sight) settled(b bind.Bound) bool {
	return bind.SameNode(s.info.Node, b.Node) && s.disk.holds(b) && s.disk.version == s.memory
}

// once looks at the instance and does what is missing. It returns true if another look may
// help, and no permanent failure is known.
func (p *attempt) once(ctx context.Context) (again bool, err error) {
	s, err := p.lookInTime(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case s.foreign != "":
		p.done.Why = ForeignText(s.foreign)
	case s.settled(p.want):
		p.done.Info, p.done.Disk = s.info, digestOf(s.raw.Config)
		return false, nil
	case bind.SameNode(s.info.Node, p.want.Node):
		p.done.Info = s.info
		if err := p.postText(ctx, dataplane.Split(p.want.Config), s.memory); err != nil {
			return isUncertain(err), err
		}
		return true, errNotOnDisk
	case s.disk.holdsNode(p.want):
		// The text was posted, but the worker does not run it. Either its reload is under
		// way, or the reload was lost when the API restarted.
		if done, err := p.arrive(ctx, s); done || err != nil {
			return done && err == nil, err
		}
	default:
		p.done.Why = outgrown(s.disk, s.info, p.want)
	}
	// Whether the instance can run the wanted snapshot follows from what is known about the
	// worker and the configuration that it runs. If the API does not report that, HAProxy
	// will decide.
	var process dataplane.Process
	var runs bind.Descriptors
	if s.disk.node == s.info.LoadedNode() { // otherwise the text on disk is not what the worker runs
		var err error
		if process, err = p.API.Process(ctx); err != nil {
			process = dataplane.Process{}
		}
		runs = bind.CountDescriptors(s.raw.Config.Body)
	}
	err = checkDescriptors(bind.CountDescriptors(p.want.Config), runs, process)
	if err != nil {
		return false, err
	}
	if err := p.upload(ctx, p.want.Files, p.known, readsFiles); err != nil {
		return false, err
	}
	return p.load(ctx, s)
}

// load posts the configuration with a reload.
func (p *attempt) load(ctx context.Context, before sight) (again bool, err error) {
	p.until = time.Now().Add(p.ReloadTimeout)
	post, cancel := context.WithDeadline(ctx, p.until)
	posted, err := p.API.PostRaw(post, p.want.Config, dataplane.PostOptions{Version: before.memory, ForceReload: true})
	cancel()
	switch {
	case err == nil:
		return p.verify(ctx, before, posted)
	case errors.Is(err, dataplane.ErrValidation):
		p.dropTransactions(ctx)
		return false, p.refused(ctx, before, err)
	case errors.Is(err, dataplane.ErrReload):
		return false, p.refuseReload(ctx, before, err)
	case errors.Is(err, dataplane.ErrConflict):
		p.dropTransactions(ctx)
		return true, err
	case isUncertain(err):
		return p.resolve(ctx, before, err)
	default:
		return false, err
	}
}

// resolve finds out whether a post took effect, after its answer was lost or was unclear.
// It waits as long as the reload may still be under way.
func (p *attempt) resolve(ctx context.Context, before sight, cause error) (again bool, err error) {
	var now sight
	_, err = p.wait(ctx, func(ctx context.Context) (bool, error) {
		s, err := p.look(ctx)
		if err != nil {
			return false, ctx.Err() // the instance may answer again before the time is up
		}
		now = s
		if before.foreign != "" && s.memory == before.memory {
			return true, nil // both texts have the same node; if the post still succeeds, another post is refused for its version
		}
		return (bind.SameNode(s.info.Node, p.want.Node) && s.foreign == "") || !s.disk.holdsNode(p.want), nil
	})
	switch {
	case err != nil || now.raw.Config.Len() == 0:
		return false, cause
	case bind.SameNode(now.info.Node, p.want.Node) && now.foreign == "":
		p.done.Reloaded = now.info.PID != before.info.PID
		return true, nil
	case now.memory > before.memory && now.disk.version != now.memory:
		// The post was written, its reload failed, and the API put the file back.
		return false, p.refuseReload(ctx, before, cause)
	default:
		return true, cause
	}
}

// arrive waits until the worker names what was posted. If the former worker was started
// from somebody else's configuration, it may already have had that name. Then arrive waits
// for another worker.
func (p *attempt) arrive(ctx context.Context, before sight) (bool, error) {
	return p.wait(ctx, func(ctx context.Context) (bool, error) {
		info, err := p.RuntimeInfo(ctx)
		if isMomentary(err) {
			return false, nil
		}
		another := err == nil && info.PID != before.info.PID
		p.done.Reloaded = p.done.Reloaded || another
		return bind.SameNode(info.Node, p.want.Node) && (another || before.foreign == ""), err
	})
}

// prove checks that the instance runs what was bound, and changes nothing.
func (p *attempt) prove(ctx context.Context) (sight, error) {
	s, err := p.lookInTime(ctx)
	if err != nil {
		return s, err
	}
	p.done.Info, p.done.Disk = s.info, digestOf(s.raw.Config)
	switch {
	case !bind.SameNode(s.info.Node, p.want.Node):
		return s, fmt.Errorf("%w: %s", ErrElsewhere, s.info.Node)
	case s.foreign != "":
		return s, fmt.Errorf("%w: %s", ErrForeign, s.foreign)
	case !s.settled(p.want):
		return s, errNotOnDisk
	}
	return s, nil
}

// verify checks that the worker and the file on disk have what was posted.
func (p *attempt) verify(ctx context.Context, before sight, posted dataplane.Posted) (again bool, err error) {
	text := readRaw(posted.Config)
	if want := readText(p.want.Config); !bind.SameNode(text.end, p.want.Node) || text.sections != want.sections {
		return false, p.undamage(ctx, before, want.sections, text.sections)
	}
	named, err := p.arrive(ctx, before)
	if err != nil {
		return isUncertain(err), err
	}
	if !named {
		return true, fmt.Errorf("the reload succeeded, but no worker names %s", p.want.Node)
	}
	s, err := p.prove(ctx)
	switch {
	case err != nil:
		return errors.Is(err, ErrElsewhere) || errors.Is(err, errNotOnDisk) || errors.Is(err, ErrForeign), err
	case s.raw.Checksum != "" && s.raw.Checksum != s.raw.Config.Checksum():
		return true, errors.New("the file on disk was edited by somebody else")
	}
	return false, nil
}

// isUncertain reports whether an error leaves open what was changed.
func isUncertain(err error) bool {
	return errors.Is(err, dataplane.ErrUnknownOutcome) || errors.Is(err, dataplane.ErrUnavailable) ||
		errors.Is(err, dataplane.ErrConflict)
}

func sum(data []byte) [32]byte { return sha256.Sum256(data) }

// refuseReload restores the instance after a failed reload. A reload also fails if the API
// could not ask HAProxy to reload, which is not the snapshot's fault.
func (p *attempt) refuseReload(ctx context.Context, before sight, cause error) error {
	if _, err := p.RuntimeInfo(ctx); errors.Is(err, dataplane.ErrRuntime) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	refused := fmt.Errorf("%w: %w", ErrRefused, cause)
	if hint, ok := instanceFault(cause.Error(), p.want.Config, p.lastGood(before).Body); ok {
		refused = &instanceError{cause, hint}
	}
	if err := p.heal(ctx, before); err != nil {
		return fmt.Errorf("%w; restore the configuration: %w", refused, err)
	}
	return refused
}

// refused returns the error for a configuration that HAProxy refused. If HAProxy also
// refuses the previous configuration, the instance is at fault, whatever the message says.
func (p *attempt) refused(ctx context.Context, before sight, cause error) error {
	if hint, ok := instanceFault(cause.Error(), p.want.Config, p.lastGood(before).Body); ok {
		return &instanceError{cause, hint}
	}
	if p.good != nil && bind.SameNode(p.good.Node, before.info.Node) && !bind.SameNode(p.good.Node, p.want.Node) {
		_, err := p.API.PostRaw(ctx, p.good.Config, dataplane.PostOptions{Version: before.memory, OnlyValidate: true})
		if errors.Is(err, dataplane.ErrValidation) {
			return &instanceError{cause, "HAProxy refuses there what it runs, too: " + Gist(err)}
		}
	}
	return fmt.Errorf("%w: %w", ErrRefused, cause)
}

// undamage returns to the last good text. It is for an API that lost a part of what was
// posted, so that the worker runs an incomplete text.
func (p *attempt) undamage(ctx context.Context, before sight, want, got int) error {
	refused := fmt.Errorf("%w: the Dataplane API kept %d of %d sections", ErrRefused, got, want)
	version, err := p.version(ctx)
	if err == nil {
		good := p.lastGood(before)
		_, err = p.API.PostRaw(ctx, good.Body, dataplane.PostOptions{Version: version, ForceReload: true, Head: string(good.Head)})
	}
	if err != nil {
		return fmt.Errorf("%w; restore the configuration: %w", refused, err)
	}
	return refused
}

// heal makes the file and the API's memory match what the worker runs. After a failed
// reload, the API puts an older file back but keeps the failed text in its memory. The next
// change by anybody would write the failed text to disk again.
func (p *attempt) heal(ctx context.Context, before sight) error {
	good := p.lastGood(before)
	want := readRaw(good)
	for range maxTries {
		s, err := p.look(ctx)
		if err != nil {
			return err
		}
		if s.info.Node != before.info.Node {
			return fmt.Errorf("%w: %s", ErrElsewhere, s.info.Node)
		}
		if s.disk.sameAs(want) && s.disk.version == s.memory {
			return nil
		}
		if err := p.postText(ctx, good, s.memory); err != nil && !isUncertain(err) {
			return err
		}
	}
	return errors.New("somebody else keeps changing it")
}

// lastGood returns the text of what ran before. If that is the good snapshot, it returns
// that with current servers, otherwise the text that was on disk.
func (p *attempt) lastGood(before sight) dataplane.Text {
	if p.good != nil && bind.SameNode(p.good.Node, before.info.Node) {
		return dataplane.Split(p.good.Config)
	}
	return withoutHeader(before.raw.Config)
}

// postText writes the text to disk and into the API's memory. The worker does not notice.
func (i Instance) postText(ctx context.Context, config dataplane.Text, version int64) error {
	_, err := i.API.PostRaw(ctx, config.Body, dataplane.PostOptions{Version: version, SkipReload: true, Head: string(config.Head)})
	if errors.Is(err, dataplane.ErrConflict) || errors.Is(err, dataplane.ErrValidation) {
		i.dropTransactions(ctx)
	}
	return err
}

func (i Instance) version(ctx context.Context) (int64, error) {
	raw, err := i.API.Raw(ctx)
	return raw.Version, err
}

// dropTransactions removes the transactions of refused posts. Each holds a whole copy of
// its text on the instance's disk, and the API does not remove it.
func (i Instance) dropTransactions(ctx context.Context) {
	all, err := i.API.Transactions(ctx)
	if err != nil {
		return // the next push removes the rest
	}
	for _, t := range all {
		if slices.Contains([]string{"failed", "outdated"}, t.Status) {
			_ = i.API.DeleteTransaction(ctx, t.ID)
		}
	}
}

// poll calls done until it returns true or an error. It returns false when the reload
// timeout is over.
func (i Instance) poll(ctx context.Context, done func() (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, i.ReloadTimeout)
	defer cancel()
	every := i.Poll
	if every <= 0 {
		every = 250 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
	}
}

// Configuration is the part of the Dataplane API that keeps haproxy.cfg.
type Configuration interface {
	Raw(ctx context.Context) (dataplane.Raw, error)
	PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error)
	Reload(ctx context.Context, id string) (dataplane.Reload, error)
	Transactions(ctx context.Context) ([]dataplane.Transaction, error)
	DeleteTransaction(ctx context.Context, id string) error
}

// Worker is the part that reports on the running worker and changes its servers.
type Worker interface {
	Info(ctx context.Context) (dataplane.APIInfo, error)
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	Process(ctx context.Context) (dataplane.Process, error)
	Servers(ctx context.Context, backend string) ([]dataplane.Server, error)
	SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error)
}

// dynamicServerAPI is the part that adds servers to the running worker.
type dynamicServerAPI interface {
	AddServer(ctx context.Context, backend string, s dataplane.DynamicServer) error
	DeleteServer(ctx context.Context, backend, server string) error
}

// Files is the part that keeps maps and other files.
type Files interface {
	Files(ctx context.Context, s dataplane.Storage) ([]dataplane.File, error)
	ReadFile(ctx context.Context, s dataplane.Storage, name string) ([]byte, error)
	CreateFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error
	ReplaceFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error
	DeleteFile(ctx context.Context, s dataplane.Storage, name string) error
}

// Certificates is the part that changes certificates in the running worker.
type Certificates interface {
	Certificate(ctx context.Context, name string) (dataplane.File, error)
	RotateCertificate(ctx context.Context, name string, pem []byte) (live bool, reloadID string, err error)
	RuntimeCertificate(ctx context.Context, path string) (dataplane.File, error)
	RuntimeCertificates(ctx context.Context) ([]string, error)
}

// Maps is the part that reads and changes maps of the running worker.
type Maps interface {
	mapReads
	AddMapEntries(ctx context.Context, name string, entries []dataplane.MapEntry) error
	SetMapEntry(ctx context.Context, name, key, value string) error
	DeleteMapEntry(ctx context.Context, name, key string) error
}

// mapReads is the part that reads maps of the running worker.
type mapReads interface {
	RuntimeMaps(ctx context.Context) ([]dataplane.RuntimeMap, error)
	MapEntries(ctx context.Context, name string) ([]dataplane.MapEntry, error)
	MapEntry(ctx context.Context, name, key string) (dataplane.MapEntry, error)
}

// Servers is the part that changes servers in the running worker, and says what it counts.
type Servers interface {
	Worker
	dynamicServerAPI
	Statistics
}

// Statistics is the part that says what the worker counts.
type Statistics interface {
	FrontendStatistics(ctx context.Context) ([]dataplane.FrontendStatistics, error)
}

// API is the part of an instance's Dataplane API that this package uses. [dataplane.Client]
// implements it.
type API interface {
	Maps
	Configuration
	Servers
	Files
	Certificates
}

// ErrRefused is the error of a snapshot that cannot run on the instance: HAProxy refused
// it, or did not start with it. Another try would end the same way. All other errors, such
// as [ErrInstance], concern the instance and say nothing about the snapshot.
var ErrRefused = errors.New("refused")

// ErrElsewhere is the error of a worker that runs another configuration than the caller
// expected. Nothing was changed.
var ErrElsewhere = errors.New("the worker runs another configuration")

// ErrForeign is the error of a worker that was started from another configuration than the
// pusher wrote, whatever snapshot it names.
var ErrForeign = errors.New("its worker was started from another configuration")

// Instance is one instance to push to.
type Instance struct {
	API API
	// ReloadTimeout is how long a reload may take.
	ReloadTimeout time.Duration
	// Poll is the time between two looks while a function waits. Zero means a quarter of a
	// second.
	Poll time.Duration
	// Override says what the worker runs if it was changed at run time. If Override is nil,
	// the worker always runs what it names.
	Override *RunningOverride
	// Record knows from what configuration the worker was started. If Record is nil, each
	// worker counts as started from the pusher's file.
	Record *Record
	// Layout is where files should be. It is compared with where the API keeps them. The
	// zero value turns the comparison off.
	Layout bind.Layout
}
