// Package schemas holds the JSON Schemas of the files that people and the programs write, for editors and
// pipelines. Tests of the packages that read these files make the schemas of their types, and `make generate`
// rewrites them.
package schemas

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names returns what there are schemas of, such as "fleet", sorted.
func Names() []string {
	found, _ := files.ReadDir(".") // they are embedded
	var out []string
	for _, f := range found {
		out = append(out, strings.TrimSuffix(f.Name(), ".json"))
	}
	slices.Sort(out)
	return out
}

// Of returns the schema of that name, and whether there is one.
func Of(name string) ([]byte, bool) {
	data, err := files.ReadFile(strings.ToLower(name) + ".json")
	return data, err == nil
}
