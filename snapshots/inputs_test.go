package snapshots

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func someInputs(n int) []Input {
	var out []Input
	for i := range n {
		out = append(out, Input{
			APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: fmt.Sprintf("team-%02d", i/100), Name: fmt.Sprintf("app-%05d", i),
			UID: fmt.Sprintf("6f1e3c55-0a0b-4c4d-8e8f-%012d", i), ResourceVersion: fmt.Sprint(1000 + i),
		})
	}
	return out
}

// Join puts together what Split makes, in whichever order the files come. An object that changes, comes or goes
// changes two files at most: its line may have been the end of one.
func TestInputsSplitAndJoined(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	m := Manifest{APIVersion: APIVersion, Kind: ManifestKind, Provenance: Provenance{Inputs: someInputs(5_000), OmittedInputs: 3}}
	_, before := m.Split()
	if len(before) < 20 || len(before) > 80 {
		t.Errorf("%d files", len(before))
	}
	for turn := range 60 {
		at := r.IntN(len(m.Provenance.Inputs))
		m.Provenance.Inputs = slices.Clone(m.Provenance.Inputs)
		switch turn % 3 {
		case 0:
			m.Provenance.Inputs[at].ResourceVersion = fmt.Sprint(1_000_000 + turn)
		case 1:
			m.Provenance.Inputs = slices.Delete(m.Provenance.Inputs, at, at+1)
		default:
			more := m.Provenance.Inputs[at]
			more.Name += fmt.Sprint("-", turn)
			m.Provenance.Inputs = slices.Insert(m.Provenance.Inputs, at+1, more)
		}
		head, files := m.Split()
		changed := 0
		for _, f := range files {
			if !slices.ContainsFunc(before, func(b File) bool { return b.Path == f.Path && string(b.Content) == string(f.Content) }) {
				changed++
			}
		}
		if changed < 1 && turn%3 != 1 || changed > 2 {
			t.Errorf("turn %d: %d of %d files changed", turn, changed, len(files))
		}
		before = files
		text, err := head.Marshal()
		if err != nil || len(text) > 1000 {
			t.Fatalf("%v, %d bytes", err, len(text))
		}
		back, err := ParseManifest(text)
		if err != nil {
			t.Fatal(err)
		}
		mixed := slices.Clone(files)
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if err := back.Join(mixed); err != nil || !reflect.DeepEqual(back.Provenance, m.Provenance) {
			t.Fatalf("turn %d: %v, %d inputs, not %d", turn, err, len(back.Provenance.Inputs), len(m.Provenance.Inputs))
		}
	}
}

// Few inputs stay in the manifest, where people read them. So do inputs that could not be joined to the same
// list.
func TestInputsStayTogether(t *testing.T) {
	t.Parallel()
	unsorted, spaced := someInputs(2_000), someInputs(2_000)
	slices.Reverse(unsorted)
	spaced[7].UID = "two\nlines"
	for name, inputs := range map[string][]Input{
		"none": nil, "few": someInputs(fewInputs), "not in order": unsorted, "twice": append(someInputs(2_000), someInputs(2_000)[1999]), "lines": spaced,
	} {
		m := Manifest{Provenance: Provenance{Inputs: inputs}}
		if head, files := m.Split(); len(files) != 0 || !reflect.DeepEqual(head, m) {
			t.Errorf("%s: split in %d files", name, len(files))
		}
	}
	if _, files := (Manifest{Provenance: Provenance{Inputs: someInputs(fewInputs + 1)}}).Split(); len(files) == 0 {
		t.Error("not split")
	}
}

// Join refuses files that are not those of the manifest.
func TestInputsOfOthers(t *testing.T) {
	t.Parallel()
	m := Manifest{Provenance: Provenance{Inputs: someInputs(2_000)}}
	head, files := m.Split()
	for name, some := range map[string][]File{
		"none":       nil,
		"one less":   files[1:],
		"one twice":  append(slices.Clone(files), files[0]),
		"no list":    append(slices.Clone(files[1:]), File{Path: files[0].Path, Content: []byte("a: b\n")}),
		"a field":    append(slices.Clone(files[1:]), File{Path: files[0].Path, Content: []byte("- apiVersion: v1\n  kind: A\n  name: b\n  weight: 1\n")}),
		"one's twin": append(slices.Clone(files[1:]), File{Path: "inputs/a.yaml", Content: files[1].Content}),
		"too large":  append(slices.Clone(files), File{Path: "inputs/a.yaml", Content: make([]byte, MaxManifest)}),
	} {
		got := head
		if err := got.Join(some); !errors.Is(err, ErrCorrupt) || len(got.Provenance.Inputs) != 0 {
			t.Errorf("%s: %v, %d inputs", name, err, len(got.Provenance.Inputs))
		}
	}
}
