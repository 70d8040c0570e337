package push

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxInspected is how many backends, and how many certificates, an inspection asks for,
// since each takes a call. The next inspection continues with others.
const maxInspected = 100

// Digest is the SHA-256 of a haproxy.cfg on an instance's disk, without the lines in which
// the API counts versions.
type Digest [sha256.Size]byte

func digestOf(config []byte) Digest {
	if len(config) == 0 {
		return Digest{}
	}
	return sha256.Sum256(withoutHeader(config))
}

// Fault is a difference between what is on an instance and what the pusher left there.
type Fault struct {
	What  string `json:"what"`
	Want  string `json:"want"`
	Found string `json:"found"`
}

// String returns "what: want …, found …".
func (f Fault) String() string { return fmt.Sprintf("%s: want %s, found %s", f.What, f.Want, f.Found) }

// Inspection is the result of looking at an instance.
type Inspection struct {
	// Running is what the worker has. It includes servers with wrong settings, so that the
	// next [Instance.Update] sets them.
	Running Running
	// Faults are the differences. A server that somebody else took out of traffic is not
	// one.
	Faults []Fault
}

// Inspect compares what is on the instance with what was bound, and changes nothing. It
// looks at the file on disk, the files beside it, the entries of maps, and the servers of
// some backends, others in each round. Have is what is known of the worker, which runs what
// was bound.
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
	missing, err := i.inspectFiles(ctx, want.Files, round)
	if err != nil {
		return out, err
	}
	out.Faults = append(out.Faults, missing...)
	if err := i.inspectMaps(ctx, want, &out); err != nil {
		return out, err
	}
	err = i.inspectServers(ctx, want, &out, round)
	return out, err
}

// inspectMaps reads the entries of the maps. The next update corrects them.
func (i Instance) inspectMaps(ctx context.Context, want bind.Bound, out *Inspection) error {
	if len(want.Maps) == 0 {
		return nil
	}
	files, err := i.loadedMaps(ctx, want.Maps)
	if errors.Is(err, errUnseen) && out.Running.Info.Loaded == "" {
		return nil
	}
	if err != nil {
		return err
	}
	for n, m := range want.Maps {
		have, err := i.API.MapEntries(ctx, files[n])
		if err != nil {
			return err
		}
		if c := changeMap(m, files[n], have); c.count() > 0 {
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
// remembers. If that is not known, it compares with what was bound, which the API writes in
// its own way.
func inspectDisk(s sight, want bind.Bound, known Digest) (Fault, bool) {
	found := digestOf(s.raw.Config)
	edited := s.raw.Checksum != "" && s.raw.Checksum != dataplane.Checksum(s.raw.Config)
	switch {
	case known != (Digest{}) && found == known && s.disk.version != s.memory:
		// A reload that somebody else asked for failed: the API put the file back, and the
		// next change by anybody would write the failed text to disk again.
		return Fault{
			What: "the memory of the Dataplane API", Want: fmt.Sprintf("version %d, which is on disk", s.disk.version),
			Found: fmt.Sprintf("version %d", s.memory),
		}, true
	case known != (Digest{}) && found == known:
		return Fault{}, false
	case known == (Digest{}) && !edited && s.changed == "" && s.settled(want):
		return Fault{}, false
	}
	return Fault{What: "haproxy.cfg on disk", Want: "what was written for " + want.Node, Found: foreignWords(s.raw.Config, want.Config)}, true
}

// foreignWords returns which lines the text on disk has and the wanted one has not, by
// section and first word only, since the rest may be a secret.
func foreignWords(found, want []byte) string {
	const most = 3
	ours := map[string]int{}
	for line := range haproxycfg.Lines(want) {
		ours[strings.Join(line.Texts(), " ")]++
	}
	var words []string
	section := ""
	for line := range haproxycfg.Lines(withoutHeader(found)) {
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

// inspectFiles returns the files that are missing or have another content.
func (i Instance) inspectFiles(ctx context.Context, files []bind.File, round int) ([]Fault, error) {
	var faults []Fault
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
			found, ok := there[f.Name]
			same := false
			switch {
			case ok && f.Held:
				same = true // whatever it is
			case ok && s.kind == bind.CertificateFile && (n < from || n >= to):
				same = true // as far as the list shows
			case ok:
				same, err = i.sameAgain(ctx, s.storage, f, found)
				ok = !errors.Is(err, dataplane.ErrNotFound)
				if err != nil && ok {
					return faults, fmt.Errorf("inspect %s: %w", f.Name, err)
				}
			}
			if !same {
				faults = append(faults, Fault{What: "file " + f.Name, Want: fmt.Sprintf("%d bytes of the snapshot", len(f.Content)), Found: foundFile(ok)})
			}
		}
	}
	return faults, nil
}

// part returns which of a number of things are inspected in a round.
func part(n, round int) (from, to int) {
	parts := max(1, (n+maxInspected-1)/maxInspected)
	from = (round % parts) * maxInspected
	return from, min(from+maxInspected, n)
}

// sameAgain is same without what is known of earlier writes. It reads the file if the list
// does not show enough.
func (i Instance) sameAgain(ctx context.Context, s dataplane.Storage, f bind.File, found dataplane.File) (bool, error) {
	if s == dataplane.Certificates && found.Serial == "" {
		var err error
		if found, err = i.API.Certificate(ctx, f.Name); err != nil {
			return false, err
		}
	}
	return i.same(ctx, s, f, found, nil)
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
		for _, d := range found { // that somebody left there
			*have = have.withDynamic(d)
		}
	})
	if err != nil {
		return err
	}
	found := replaced(have.Servers, backends[from:end], some)
	wanted, _ := keepDrained(want.Servers, have.ManualDrains)
	believe(found, wanted)
	have.ManualDrains = updateDrains(have.ManualDrains, have.Servers, found, nil)
	wanted, have.ManualDrains = keepDrained(want.Servers, have.ManualDrains)
	have.Servers = found
	for _, c := range changes(found, wanted) {
		out.Faults = append(out.Faults, Fault{What: "server " + c.to.Backend + "/" + c.to.Name, Want: describe(c.to), Found: describe(c.from)})
	}
	return nil
}

func describe(s bind.Server) string {
	return fmt.Sprintf("%s at %s:%d", s.State, s.Address, s.Port)
}

// Mend uploads the files that an inspection missed and writes the text to disk. The worker
// does not notice. It returns the digest of the file on disk.
func (i Instance) Mend(ctx context.Context, want bind.Bound, known Known) (Digest, error) {
	if err := i.upload(ctx, want.Files, known); err != nil {
		return Digest{}, err
	}
	disk, err := i.Persist(ctx, want)
	if errors.Is(err, dataplane.ErrValidation) {
		return disk, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return disk, err
}
