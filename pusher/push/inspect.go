package push

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxInspected is how many backends, and how many certificates, one inspection looks at,
// since each takes a call. The next inspection continues with the following ones.
const maxInspected = 100

// Digest is the SHA-256 of a haproxy.cfg on an instance's disk, without the lines in which
// the API counts versions.
type Digest [sha256.Size]byte

func digestOf(config dataplane.Text) (d Digest) {
	if config.Len() == 0 {
		return Digest{}
	}
	config = withoutHeader(config)
	sum := sha256.New()
	sum.Write(config.Head)
	sum.Write(config.Body)
	sum.Sum(d[:0])
	return d
}

// Fault is a difference between what is on an instance and what the pusher left there.
type Fault struct {
	What  string `json:"what"`
	Want  string `json:"want"`
	Found string `json:"found"`
}

// OnDisk reports whether the fault is in a file. Other faults are in servers, maps and
// certificates of the worker, and the next update corrects those.
func (f Fault) OnDisk() bool {
	kind, _, _ := strings.Cut(f.What, " ")
	return kind != "server" && kind != "map" && kind != "certificate"
}

// String returns "what: want …, found …".
func (f Fault) String() string { return fmt.Sprintf("%s: want %s, found %s", f.What, f.Want, f.Found) }

// Inspection is the result of looking at an instance.
type Inspection struct {
	// Running is what the worker has. It includes servers with wrong settings, so that the
	// next [Instance.Update] sets them.
	Running Running
	// Faults are the differences. A server that somebody took out of traffic by hand is not
	// a fault.
	Faults []Fault
}

// Inspect compares what is on the instance with what was bound, and changes nothing. It
// looks at the file on disk, the files beside it, the entries of maps and the frontends. It
// also looks at some of the certificates, and at the servers of some backends; each round
// looks at others. It notes in the [Record] what only a reload repairs. have is what is
// known about the worker, which runs what was bound.
func (i Instance) Inspect(ctx context.Context, want bind.Bound, have Running, round int) (Inspection, error) {
	out := Inspection{Running: have}
	s, err := i.look(ctx)
	if err != nil {
		return out, err
	}
	if !bind.SameNode(s.info.Node, want.Node) || s.info.PID != have.Info.PID {
		return out, fmt.Errorf("%w: %s", ErrElsewhere, s.info.Node)
	}
	if fault, ok := inspectDisk(s, want, have.Disk); ok {
		out.Faults = append(out.Faults, fault)
	} else {
		out.Running.Disk = digestOf(s.raw.Config)
	}
	// An error about one object does not end the inspection of the others.
	missing, err := i.inspectFiles(ctx, want.Files, have.Certificates, round)
	out.Faults = append(out.Faults, missing...)
	for _, look := range []func() error{
		func() error { return i.inspectCertificates(ctx, want, &out, round) },
		func() error { return i.inspectMaps(ctx, want, &out) },
		func() error { return i.inspectServers(ctx, want, &out, round) },
		func() error { return i.inspectFrontends(ctx, want, have.Info) },
	} {
		if err != nil && !isOfOne(err) {
			return out, err
		}
		err = errors.Join(err, look())
	}
	return out, err
}

// inspectMaps reads the entries of the maps. The next update corrects them.
func (i Instance) inspectMaps(ctx context.Context, want bind.Bound, out *Inspection) error {
	if len(want.Maps) == 0 || out.Running.Maps != want.Entries {
		return nil // the next update reads and corrects them
	}
	loaded, err := runtime{i}.loadedMaps(ctx, want.Maps)
	if errors.Is(err, errUnseen) && out.Running.Info.Loaded == "" {
		return nil
	}
	if err != nil {
		return err
	}
	for n, m := range want.Maps {
		have, err := i.API.MapEntries(ctx, loaded[n].Name)
		if err != nil {
			return err
		}
		if c := changeMap(m, have); c.count() > 0 {
			out.Running.Maps = ""
			out.Faults = append(out.Faults, Fault{
				What: "map " + m.Source, Want: fmt.Sprintf("%d entries of the snapshot", len(m.Entries)),
				Found: fmt.Sprintf("%d others: %s", c.count(), c),
			})
		}
	}
	return nil
}

// inspectDisk compares the file on disk with what was written there, and with what the API
// has in memory. If the digest of what was written is not known, it compares the file with
// what was bound. The API writes that in its own form.
func inspectDisk(s sight, want bind.Bound, known Digest) (Fault, bool) {
	found := digestOf(s.raw.Config)
	edited := s.raw.Checksum != "" && s.raw.Checksum != s.raw.Config.Checksum()
	switch {
	case known != (Digest{}) && found == known && s.disk.version != s.memory:
		// A reload that somebody else asked for has failed. The API put the file back, and
		// the next change by anybody would write the failed text to disk again.
		return Fault{
			What: "the memory of the Dataplane API", Want: fmt.Sprintf("version %d, which is on disk", s.disk.version),
			Found: fmt.Sprintf("version %d", s.memory),
		}, true
	case known != (Digest{}) && found == known:
		return Fault{}, false
	case known == (Digest{}) && !edited && s.changed == "" && s.settled(want):
		return Fault{}, false
	}
	return Fault{What: "haproxy.cfg on disk", Want: "what was written for " + want.Node, Found: foreignWords(s.raw.Config.Body, want.Config)}, true
}

// foreignWords says which lines the text on disk has and the wanted text does not. It names
// only the section and the first word of each line, since the rest may be a secret.
func foreignWords(found, want []byte) string {
	const most = 3
	ours := map[string]int{}
	for line := range haproxycfg.Lines(want) {
		ours[strings.Join(line.Texts(), " ")]++
	}
	var words []string
	section := ""
	for line := range haproxycfg.Lines(found) {
		texts := line.Texts()
		if len(texts) == 0 {
			continue
		}
		if s, begins := haproxycfg.BeginSection(line); begins {
			section = strings.TrimSpace(s.Keyword + " " + s.Name)
		}
		text, what := strings.Join(texts, " "), section+": "+texts[0]
		if ours[text]--; ours[text] < 0 && !slices.Contains(words, what) && texts[0] != "server" {
			words = append(words, what)
		}
	}
	if len(words) == 0 {
		return "another text"
	}
	if len(words) > most {
		words = append(words[:most], "…")
	}
	return "another text, in " + printable.Text(strings.Join(words, ", "))
}

// inspectFiles returns the files that are missing or have another content. It does not
// check a certificate that the worker is not known to have, since the next update writes
// it.
func (i Instance) inspectFiles(ctx context.Context, files []bind.File, known CertificateHashes, round int) ([]Fault, error) {
	var faults []Fault
	var failed []error
	for _, s := range storages {
		mine := slices.DeleteFunc(slices.Clone(files), func(f bind.File) bool { return f.Kind != s.kind })
		if len(mine) == 0 {
			continue
		}
		there, err := i.list(ctx, s.storage)
		if err != nil {
			return faults, err
		}
		from, to := part(len(mine), round)
		for n, f := range mine {
			_, ok := there[f.Name]
			same := false
			switch {
			case ok && f.Held:
				same = true // held: any version counts
			case ok && s.kind == bind.CertificateFile && (n < from || n >= to || known[f.Path] != sum(f.Content)):
				same = true // the list shows it, and this round checks no more
			case ok:
				if s.kind == bind.CertificateFile {
					same, err = i.looksTheSame(ctx, f) // earlier writes do not count, since somebody may have replaced it
				} else {
					same, err = i.same(ctx, s.storage, f, nil, readsFiles)
				}
				ok = !errors.Is(err, dataplane.ErrNotFound)
				if err != nil && ok {
					err = fmt.Errorf("inspect %s: %w", f.Name, err)
					if !isOfOne(err) {
						return faults, err
					}
					failed, same = append(failed, err), true // nothing is known against it
				}
			}
			if !same {
				faults = append(faults, Fault{What: "file " + f.Name, Want: fmt.Sprintf("%d bytes of the snapshot", len(f.Content)), Found: foundFile(ok)})
			}
		}
	}
	return faults, several(failed)
}

// inspectCertificates asks the worker for the fingerprints of some of the certificates that
// it is known to have. Somebody may have replaced a certificate in the worker, or its file
// before the worker read it. The next update puts the certificates back.
func (i Instance) inspectCertificates(ctx context.Context, want bind.Bound, out *Inspection, round int) error {
	known := out.Running.Certificates
	mine := slices.DeleteFunc(slices.Clone(want.Files), func(f bind.File) bool {
		have, ok := known[f.Path]
		return f.Kind != bind.CertificateFile || f.Held || !ok || have != sum(f.Content)
	})
	from, to := part(len(mine), round)
	listed := listedIn(want)
	var failed []error
	for _, f := range mine[from:to] {
		found, err := i.API.RuntimeCertificate(ctx, f.Path)
		absent := errors.Is(err, dataplane.ErrNotFound)
		if absent && !listed[f.Path] {
			continue // the worker has loaded no certificate of that name
		}
		if absent {
			absent, err = i.notLoaded(ctx, f)
		}
		if absent || err == nil && found.Unused && listed[f.Path] {
			i.Record.damaged(out.Running.Info, fmt.Sprintf("%sdeleted certificate %s, or its entry in a crt-list, from its worker", bySomebody, f.Name))
			continue
		}
		if err != nil {
			err = fmt.Errorf("inspect %s in the worker: %w", f.Name, err)
			if !isOfOne(err) {
				return err
			}
			failed = append(failed, err)
			continue
		}
		if found.Fingerprint == "" || isOf(found, f) {
			continue
		}
		out.Running.Certificates = maps.Clone(out.Running.Certificates)
		delete(out.Running.Certificates, f.Path)
		out.Faults = append(out.Faults, Fault{What: "certificate " + f.Name, Want: "that of the snapshot", Found: "another one"})
	}
	return several(failed)
}

// notLoaded reports whether the worker lists certificates, and this is not among them. That
// it has no answer about one certificate is no proof.
func (i Instance) notLoaded(ctx context.Context, f bind.File) (bool, error) {
	loaded, err := i.API.RuntimeCertificates(ctx)
	named := func(file string) bool { return path.Base(file) == f.Name }
	return len(loaded) > 0 && !slices.ContainsFunc(loaded, named), err
}

// listedIn returns the paths that the crt-lists of a configuration name. The worker serves
// each of these certificates.
func listedIn(want bind.Bound) map[string]bool {
	out := map[string]bool{}
	words := wordsOf(want.Config)
	for _, f := range want.Files {
		if f.Kind != bind.GeneralFile || !strings.HasSuffix(f.Source, ".crtlist") || !slices.Contains(words, f.Path) {
			continue
		}
		for line := range strings.Lines(string(f.Content)) {
			if fields := strings.Fields(line); len(fields) > 0 {
				out[fields[0]] = true
			}
		}
	}
	return out
}

// closedPatience is how long a frontend may be closed before that counts as done by
// somebody. A worker closes its frontends for a moment while another one cannot be started.
const closedPatience = 5 * time.Second

// inspectFrontends asks whether all frontends of the worker take connections. Somebody may
// have disabled or shut down one of them. The API cannot open it again.
func (i Instance) inspectFrontends(ctx context.Context, want bind.Bound, info dataplane.RuntimeInfo) error {
	var closed dataplane.FrontendStatistics
	i.ReloadTimeout = min(i.ReloadTimeout, closedPatience)
	open, err := i.poll(ctx, func() (bool, error) {
		list, err := i.API.FrontendStatistics(ctx)
		at := slices.IndexFunc(list, func(f dataplane.FrontendStatistics) bool {
			return (f.Paused || f.Shut) && hasFrontend(want.Config, f.Name)
		})
		if err == nil && at >= 0 {
			closed = list[at]
		}
		return at < 0, err
	})
	if open || err != nil {
		return err
	}
	now, err := i.WorkerInfo(ctx)
	if err == nil && now.PID == info.PID {
		how := "disabled"
		if closed.Shut {
			how = "shut down"
		}
		i.Record.damaged(info, fmt.Sprintf("%s%s frontend %s of its worker", bySomebody, how, closed.Name))
	}
	return err
}

// hasFrontend reports whether a configuration has a frontend or a listen section of a name.
func hasFrontend(config []byte, name string) bool {
	for line := range haproxycfg.Lines(config) {
		if s, begins := haproxycfg.BeginSection(line); begins && s.Name == name && (s.Keyword == "frontend" || s.Keyword == "listen") {
			return true
		}
	}
	return false
}

// part returns the range of things to inspect in a round, out of n.
func part(n, round int) (from, to int) {
	parts := max(1, (n+maxInspected-1)/maxInspected)
	from = (round % parts) * maxInspected
	return from, min(from+maxInspected, n)
}

func foundFile(there bool) string {
	if there {
		return "another content"
	}
	return "none"
}

// inspectServers reads the servers of some backends.
func (i Instance) inspectServers(ctx context.Context, want bind.Bound, out *Inspection, round int) error {
	have := &out.Running
	if have.Servers == nil || !aligned(have.Servers, want.Servers) {
		return nil // the next update reads all of them
	}
	backends := spans(have.Servers)
	from, end := part(len(backends), round)
	some, err := i.readBackAll(ctx, have.Servers, backends[from:end], func(found []Dynamic) {
		for _, d := range found { // somebody left it there
			*have = have.withDynamic(d)
		}
	})
	if err != nil {
		return err
	}
	found := replaced(have.Servers, backends[from:end], some)
	wanted, _ := keepDrained(want.Servers, have.ManualDrains)
	believe(found, wanted)
	*have = have.noteDrains(have.Servers, found, nil)
	wanted, have.ManualDrains = keepDrained(want.Servers, have.ManualDrains)
	known := have.Servers
	have.Servers = found
	for _, c := range changes(found, wanted) {
		if known[c.at] == c.from {
			continue // the last update could not set it
		}
		out.Faults = append(out.Faults, Fault{What: "server " + c.to.Backend + "/" + c.to.Name, Want: describe(c.to), Found: describe(c.from)})
	}
	return nil
}

func describe(s bind.Server) string {
	if s.Address == "" {
		return "none"
	}
	return fmt.Sprintf("%s at %s:%d", s.State, s.Address, s.Port)
}

// Mend uploads the files that an inspection found missing, and writes the text to disk. The
// worker does not notice. It returns the digest of the file on disk.
func (i Instance) Mend(ctx context.Context, want bind.Bound, known CertificateHashes) (Digest, error) {
	if err := i.upload(ctx, want.Files, known, readsFiles); err != nil {
		return Digest{}, err
	}
	disk, err := i.WriteText(ctx, want)
	if errors.Is(err, dataplane.ErrValidation) {
		return disk, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return disk, err
}

// uptimeSlack is the largest error in the reported age of a worker. The age is in whole
// seconds, and is determined a little before the answer.
const uptimeSlack = 3 * time.Second

// Process is what the worker of an instance said about itself at a time.
type Process struct {
	PID    int           `json:"pid"`
	Loaded string        `json:"loaded"` // the node of what it loaded
	Uptime time.Duration `json:"uptime"`
	Asked  time.Time     `json:"asked"`
}

// ProcessOf returns what the worker said about itself when it was asked.
func ProcessOf(info dataplane.RuntimeInfo, asked time.Time) Process {
	return Process{PID: info.PID, Loaded: info.LoadedNode(), Uptime: info.Uptime, Asked: asked}
}

// Started returns when the worker began, or a later time. If HAProxy could not run for a
// while, such as on a paused machine, it assumes that the clock was set, and leaves that
// time out of its age (seen with 2.6).
func (w Process) Started() time.Time { return w.Asked.Add(-w.Uptime) }

// OtherThan reports whether this report is from another worker than the last one. After a
// restart of the container, the new worker may have the same PID and the same node. It is
// then younger than the last worker would be by now, and no older than the time since the
// last report. On a machine under load, each report may understate the age of a worker a
// little more.
func (w Process) OtherThan(last Process) bool {
	passed := w.Asked.Sub(last.Asked)
	switch {
	case w.PID != last.PID, w.Loaded != last.Loaded, w.Uptime+uptimeSlack < last.Uptime:
		return true
	case w.Uptime+uptimeSlack >= last.Uptime+passed:
		return false
	}
	return w.Uptime <= passed+time.Second // it is reported in whole seconds
}

// Override says what a worker runs after it was changed at run time. Such a worker still
// names the snapshot that it loaded, since HAProxy cannot change that name in a running
// worker. The pusher has read back from the worker what it changed. The file on disk has
// the same.
type Override struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // by the pusher's clock
	Loaded  string    `json:"loaded"`  // its node
	Runs    string    `json:"runs"`    // the node of the snapshot that it runs
	// Maps are the files from which the worker loaded its maps, and by which it names them.
	Maps []string `json:"maps,omitempty"`
}

// startSlack is the largest error in the start time of a worker. The age of a worker is in
// whole seconds, and the clocks of two machines on which pushers run one after the other
// may differ. The value need not be exact. If it is too large, then at worst another worker
// with the same PID and the same loaded snapshot gets the map entries of the former one.
const startSlack = time.Minute

// of reports whether the override belongs to the worker that answered with info. After a
// restart of the container, another worker may have the same PID.
func (o Override) of(info dataplane.RuntimeInfo, asked time.Time) bool {
	return o.Runs != "" && o.PID == info.PID && o.Loaded == info.Node && !asked.Add(-info.Uptime).After(o.Started.Add(startSlack))
}

// RunningOverride holds the [Override] of the worker of one instance. It is safe for
// concurrent use.
type RunningOverride struct {
	mu       sync.Mutex
	value    Override
	restored bool // by another process, and not compared with the file since
}

// Get returns the override. It is zero if the worker runs the snapshot that it names.
func (r *RunningOverride) Get() Override {
	if r == nil {
		return Override{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// Set replaces the override.
func (r *RunningOverride) Set(o Override) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.restored = o, false
}

// Restore sets the override to what another process knew, whose clock may have differed.
func (r *RunningOverride) Restore(o Override) {
	r.Set(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restored = true
}

// unsure reports whether a worker may be the one of a restored override, although it seems younger.
func (r *RunningOverride) unsure(info dataplane.RuntimeInfo) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restored && info.Loaded == "" && r.value.Runs != "" && r.value.PID == info.PID && r.value.Loaded == info.Node
}

// adopt takes a worker for the one of a restored override if the file has what the override
// says: a worker that was started since would have loaded that. So the clock of this process
// may be ahead of the one by which the override says when the worker began.
func (i Instance) adopt(ctx context.Context, info dataplane.RuntimeInfo, asked time.Time) error {
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return err
	}
	o, kept := i.Override.Get(), i.Record.Remembered()
	last := kept.Worker
	if bind.SameNode(readRaw(raw.Config).node, o.Runs) && foreignText(raw, kept.Marked) == "" && last.PID == info.PID && info.Uptime+uptimeSlack >= last.Uptime {
		o.Started = asked.Add(-info.Uptime)
	}
	i.Override.Set(o)
	return nil
}

// applied returns what a worker said about itself. If the worker has an override, Node is
// what the override says.
func (r *RunningOverride) applied(info dataplane.RuntimeInfo, asked time.Time) dataplane.RuntimeInfo {
	if r == nil {
		return info
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value.of(info, asked) {
		info.Loaded, info.Node = info.Node, r.value.Runs
	}
	return info
}

// RuntimeInfo asks the worker, and sets Node to what it runs.
func (i Instance) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	asked := time.Now()
	info, err := i.API.RuntimeInfo(ctx)
	if err != nil {
		return info, err
	}
	info = i.Override.applied(info, asked)
	if i.Override.unsure(info) {
		if err := i.adopt(ctx, info, asked); err != nil {
			return dataplane.RuntimeInfo{}, err
		}
		info = i.Override.applied(info, asked)
	}
	i.Record.heard(info, asked)
	return info, nil
}

// setOverride notes that the worker runs what was bound. If the worker has loaded exactly
// that, setOverride removes the override.
func (i Instance) setOverride(info dataplane.RuntimeInfo, want bind.Bound, maps []string) {
	loaded := info.LoadedNode()
	if bind.SameNode(loaded, want.Node) {
		i.Override.Set(Override{})
		return
	}
	i.Override.Set(Override{PID: info.PID, Started: time.Now().Add(-info.Uptime), Loaded: loaded, Runs: want.Node, Maps: maps})
}

// errDescriptors is the error of an instance whose HAProxy may not open as many files as a
// worker of the snapshot needs. Such a worker does not start, and a restarted HAProxy does
// not start either. The instance is at fault, not the snapshot.
var errDescriptors = errors.New("too few file descriptors")

// checkDescriptors compares the number of files that a worker needs at least with the
// number that it may open, if that is known. It runs before anything is written.
func checkDescriptors(want, runs bind.Descriptors, p dataplane.Process) error {
	least := want.Least()
	if limit := want.HardLimit; limit > 0 && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and fd-hard-limit is %d; raise it, or have fewer spare slots or checks",
			errDescriptors, least, want, limit)
	}
	if limit, known := processLimit(runs, p); known && least > limit {
		return fmt.Errorf("%w: a worker needs at least %d (%s), and HAProxy may open %d; raise its limit of open files (LimitNOFILE= of systemd, --ulimit nofile of a container)",
			errDescriptors, least, want, limit)
	}
	return nil
}

// processLimit returns how many files the running worker may open. HAProxy reports how many
// it may come to use. If its configuration does not set maxconn, HAProxy uses all that it
// may open, or fd-hard-limit. Otherwise HAProxy reports what it needs, and the limit is not
// known.
func processLimit(runs bind.Descriptors, p dataplane.Process) (limit int, known bool) {
	limit = p.Sockets + 1 // HAProxy rounds down to pairs
	return limit, p.Sockets > 0 && runs.MaxConn == 0 && (runs.HardLimit == 0 || limit < runs.HardLimit)
}
