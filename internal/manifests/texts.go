package manifests

// Text is a manifest that is there already, such as one that came through a
// pipe. File is what positions name it.
type Text struct {
	File string
	Data []byte
}

// ReadTexts reads YAML as [Read] does the files of a directory.
func ReadTexts(texts ...Text) Set {
	var parts []part
	for _, t := range texts {
		parts = append(parts, partsOf(t.File, t.Data, false)...)
	}
	return new(Reader).set(parts)
}

// Merge returns what several sets hold together. What is in two of them because
// one file was read twice is there once; of two other objects of one name, the
// second is a problem.
func Merge(sets ...Set) Set {
	var merged Set
	objects, problems := map[Position]bool{}, map[Problem]bool{}
	for _, s := range sets {
		for _, o := range s.Objects {
			if at := o.Position(); !objects[at] {
				objects[at] = true
				merged.Objects = append(merged.Objects, o)
			}
		}
		for _, p := range s.Problems {
			if !problems[p] {
				problems[p] = true
				merged.Problems = append(merged.Problems, p)
			}
		}
	}
	merged.sort()
	return merged
}
