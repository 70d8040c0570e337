package inputs

import (
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
)

// lastApplied is where kubectl keeps the whole object once more.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Trimmer returns what takes the fields out of an object of a kind that are not
// kept, so that they take no memory: those that the kind says, and those that
// only the API server and kubectl use.
func Trimmer(kind kinds.Kind) func(content map[string]any) {
	paths := [][]string{{"metadata", "managedFields"}, {"metadata", "annotations", lastApplied}}
	for _, text := range kind.Drop {
		if path, err := kinds.FieldPath(text); err == nil { // as the configuration was checked
			paths = append(paths, path)
		}
	}
	return func(content map[string]any) {
		for _, path := range paths {
			drop(content, path)
		}
	}
}

// drop takes a field out of a value; in a list, out of every element.
func drop(value any, path []string) {
	switch v := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		drop(v[path[0]], path[1:])
	case []any:
		for _, element := range v {
			drop(element, path)
		}
	}
}
