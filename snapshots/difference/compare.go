// Package difference compares two snapshots: file by file for people, and as the pusher would see a
// fleet go from one to the other, with the line that decides whether HAProxy has to be reloaded.
//
// It is a pure function of both sides, and knows no fleet: it counts slots as if the fleet had begun
// with the first side. It does not compare what is in Secrets.
//
// # Decisions
//
// compiler diff reports a reload if the shapes differ, as bind.Classify does for bound configurations,
// and names the first line that differs. Without an instance some things are not known: the package
// counts slots from the endpoints of the first side, and reports a reload if one Service replaces
// another, though both may have as many slots.
package difference

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// CertificatesFile is the name under which the certificate references of a
// snapshot are compared, as if they were a file.
const CertificatesFile = "certificates"

// Side is one of the two snapshots that are compared. Name says what it is, on one line.
type Side struct {
	Name         string
	Files        []snapshots.File
	Certificates []snapshots.CertificateRef
	Recipients   []string // that certificates are sealed to
	// Endpoints are the live endpoints that the side would be joined with, nil if they are unknown.
	// They do not count where the snapshot records its endpoints in a file.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
}

// SideOf returns a snapshot as a side under a name.
func SideOf(name string, s snapshots.Snapshot) Side {
	return Side{Name: name, Files: s.Files, Certificates: s.Manifest.Spec.Certificates, Recipients: s.Manifest.Spec.Recipients}
}

// Verdict says what it takes to bring a fleet from one side to the other. It is what [bind.Classify]
// says of the sides as they are bound, as far as that is known without an instance.
type Verdict = bind.Verdict

// The verdicts.
const (
	Nothing = bind.Nothing
	Runtime = bind.Runtime
	Reload  = bind.Reload
)

// Difference is how the second of two sides differs from the first.
type Difference struct {
	Files   []File // that differ, sorted by path
	Verdict Verdict
	// Decides is the line that the verdict is for; zero if nothing differs.
	Decides Line
	// Why explains a verdict that the line alone does not.
	Why string
}

// File is how a file differs. The lines of Diff are those of a unified diff.
// Live is set for the endpoints that are no part of either snapshot.
type File struct {
	Path           string
	Live           bool
	Diff           string
	Added, Removed int
}

// Line is a line of a file of one side: of the first if Old is set.
type Line struct {
	Old  bool
	File string
	Line int // from 1
	Text string
}

const (
	whyFile  = "a file without a line has come or gone"
	whyGrow  = "there are more endpoints than server lines"
	whySlots = "there is another number of server lines for other recorded endpoints"
)

// Compare compares two sides. Its error is about a side that cannot be read.
func Compare(a, b Side) (Difference, error) {
	c := comparison{a: a, b: b, old: texts(a), new: texts(b)}
	var d Difference
	for _, path := range c.paths() {
		if file, ok := c.file(path, c.old, c.new); ok {
			d.Files = append(d.Files, file)
		}
	}
	live, err := c.liveEndpoints()
	if err != nil {
		return Difference{}, err
	}
	if len(d.Files) == 0 {
		d.Verdict, d.Decides, d.Why, err = c.judgeEndpoints(live)
	} else {
		d.Verdict, d.Decides, d.Why, err = c.decidingLine()
	}
	if live != nil && err == nil {
		d.Files = append(d.Files, *live)
		slices.SortStableFunc(d.Files, func(x, y File) int { return cmp.Compare(x.Path, y.Path) })
	}
	return d, err
}

// comparison is one call of Compare.
type comparison struct {
	a, b     Side
	old, new map[string]string
}

// texts returns what is compared, by path. Of sealed certificates it compares the versions, since age
// encrypts to other bytes each time.
func texts(s Side) map[string]string {
	out := map[string]string{}
	for _, f := range s.Files {
		if !snapshots.IsSealed(f.Path) {
			out[f.Path] = string(f.Content)
		}
	}
	var lines []string
	for _, c := range s.Certificates {
		if c.Secret != (snapshots.SecretName{}) {
			line := fmt.Sprintf("%s: %s", c.File, bind.Need{Use: c.Use, Secret: c.Secret})
			if c.Versioned() {
				line += fmt.Sprintf(", %s, version %s", c.Mode, cmp.Or(c.Version, "none"))
			}
			lines = append(lines, line+"\n")
		}
	}
	slices.Sort(lines)
	for _, r := range s.Recipients {
		lines = append(lines, "sealed to "+r+"\n")
	}
	if len(lines) > 0 {
		out[CertificatesFile] = strings.Join(lines, "")
	}
	return out
}

// paths returns the files of both sides, sorted.
func (c *comparison) paths() []string {
	all := maps.Clone(c.old)
	maps.Copy(all, c.new)
	return slices.Sorted(maps.Keys(all))
}

// file compares a file, and reports whether it differs.
func (c *comparison) file(path string, before, after map[string]string) (File, bool) {
	x, hadIt := before[path]
	y, hasIt := after[path]
	if x == y && hadIt == hasIt {
		return File{}, false
	}
	from, to := "a/"+path+"\t"+c.a.Name, "b/"+path+"\t"+c.b.Name
	if !hadIt {
		from = "/dev/null"
	}
	if !hasIt {
		to = "/dev/null"
	}
	f := File{Path: path, Diff: Unified(from, x, to, y)}
	for _, change := range changes(f.Diff) {
		if change.old {
			f.Removed++
		} else {
			f.Added++
		}
	}
	return f, true
}
