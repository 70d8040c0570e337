package render

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// parts are renderings of one input that do not depend on each other: that of
// haproxy.cfg, which comes first, and those of the files beside it.
type parts []*rendering

// fileParts is how many parts the files are divided into. A part costs what
// preparing the templates costs, and large maps take as long as haproxy.cfg.
const fileParts = 2

// newParts prepares the parts. Only the first one has templates for backends.
func (s *Set) newParts(page Page, memo *Memo) parts {
	var sections []int
	var files [fileParts][]int
	for i, file := range s.files {
		switch areaOf(file.Name) {
		case section:
			sections = append(sections, i)
		case mapFile, otherFile:
			files[i%fileParts] = append(files[i%fileParts], i)
		}
	}
	out := parts{s.newRendering(page, memo, sections)}
	for _, templates := range files {
		out = append(out, s.newRendering(page, memo, templates))
	}
	return out
}

func (s *Set) newRendering(page Page, memo *Memo, templates []int) *rendering {
	return &rendering{
		set: s, page: page, memo: memo, templates: templates, known: map[routing.Origin]int{}, secrets: map[string]bool{},
		config: &assembly{files: s.files}, artifact: Artifact{Origins: map[string][]LineOrigin{}},
	}
}

// run executes the templates, of several parts at the same time: what comes of
// them does not depend on which is done first.
func (all parts) run() {
	var running sync.WaitGroup
	for _, r := range all {
		running.Go(r.run)
	}
	running.Wait()
}

// joined returns the first part with the files, faults and words of all.
func (all parts) joined() *rendering {
	first := all[0]
	for _, r := range all[1:] {
		first.artifact.Files = append(first.artifact.Files, r.artifact.Files...)
		maps.Copy(first.artifact.Origins, r.artifact.Origins)
		maps.Copy(first.secrets, r.secrets)
		first.faults = append(first.faults, r.faults...)
	}
	slices.SortStableFunc(first.faults, func(a, b faultOf) int { return cmp.Compare(a.template, b.template) })
	return first
}

// faultOf is a fault that was met when a template was executed.
type faultOf struct {
	template int
	Fault
}

// plain returns the faults, in the order of the templates.
func plain(faults []faultOf) []Fault {
	out := make([]Fault, len(faults))
	for i, f := range faults {
		out[i] = f.Fault
	}
	return out
}
